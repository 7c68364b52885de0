#!/usr/bin/env python3
"""Tests bindings/python/qccl.py between processes: over mpi4py, over torch.distributed, under DDP and FSDP2.

    python_ranks.py QCCL-LIBRARY [MPIRUN]
    python_ranks.py QCCL-LIBRARY --rank NAME ...      what the tests start as ranks of their own

Expected results are those of ranks that are threads, which python_bindings.py compares with the golden values.  Prints
TAP.
"""
import os
import sys
import tempfile
from unittest import mock

from python_harness import INT4, MPIRUN, digest, exercise, mpi4py, numpy, on_ranks, qccl, raised, run, same_program, \
    some, started, torch

# ---------------------------------------------------------------- MPI
def rank_of_mpi():
    from mpi4py import MPI
    world, mine = MPI.COMM_WORLD, MPI.COMM_WORLD.Dup()
    with mock.patch.object(MPI, "Get_library_version", return_value="Another MPI 1.0\n"):
        refused = raised(qccl.init_mpi)
    with qccl.init_mpi(mine, policy=INT4, seed=3, nodes=[0] * world.size) as comm, qccl.init_mpi() as other:
        place = (comm.rank, comm.nranks) == (world.rank, world.size) == (other.rank, other.nranks)
        result = exercise(comm)
    wrong = raised(qccl.init_mpi, nodes=[0] * 9)
    bad = raised(qccl.init_mpi, policy=f"min={world.rank + 1}KiB")
    mine.Free()
    for rank, text in enumerate(world.gather((place, str(refused), str(wrong), str(bad), result)) or []):
        print("RANK", rank, *map(repr, text), sep="|")


def over_mpi_results_are_those_of_threads():
    text = started([MPIRUN, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "3", *same_program("mpi")])[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("RANK|")]
    wanted = on_ranks(3, exercise, policy=INT4, seed=3)
    assert len(lines) == 3, text
    for (_, _, place, refused, wrong, bad, result), want in zip(lines, wanted):
        assert place == "True" and "mpi4py for Another MPI 1.0" in refused, (place, refused)
        assert "nodes has 9 numbers for 3 ranks" in wrong and "qcclMismatch" in bad, (wrong, bad)
        assert result == repr(want)


# ---------------------------------------------------------------- torch.distributed
def joined(size):
    """Joins the processes that a test started, by a file that the test names."""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + sys.argv[-1], rank=int(os.environ["RANK"]), world_size=size)
    return dist


def over_gloo(name, size):
    with tempfile.TemporaryDirectory() as folder:
        return started(same_program(name, os.path.join(folder, "store")), size)


def rank_of_torch():
    dist = joined(3)
    with qccl.init_torch(policy=INT4, seed=3) as comm, qccl.init_torch(policy=INT4, seed=3) as other:
        first = exercise(comm)
        with qccl.Stream() as one, qccl.Stream() as two:
            x, y = some(comm.rank), some(comm.rank)
            comm.all_reduce(x, stream=one)
            other.all_reduce(y, stream=two)
        print("STREAMS", *map(digest, (x, y)))
        print("FIRST", first)
    groups = [dist.new_group([2, 0]), dist.new_group([1, 2])]
    if comm.rank != 1:
        with qccl.init_torch(groups[0], policy="min=1GiB") as part:
            print("PART", part.all_gather(numpy.array([comm.rank]), numpy.zeros(2, int)).tolist())
    print("REFUSED", raised(qccl.init_torch, policy=f"min={comm.rank + 1}KiB"))
    alone = qccl.init_torch(timeout=2)
    if comm.rank:
        print("LEFT", raised(alone.all_reduce, some(comm.rank)).name)


def over_torch_distributed_results_are_those_of_threads():
    wanted = on_ranks(3, exercise, policy=INT4, seed=3)

    def later(comm):
        comm.sequence = 4
        return digest(comm.all_reduce(some(comm.rank)))
    streamed = f"{on_ranks(3, later, policy=INT4, seed=3)[0]} {on_ranks(3, sums, policy=INT4, seed=3)[0]}"
    for rank, text in enumerate(over_gloo("torch", 3)):
        said = dict(line.partition(" ")[::2] for line in text.splitlines())
        assert said["FIRST"] == wanted[rank] and said["STREAMS"] == streamed, text
        assert said.get("PART") == ("[0, 2]" if rank != 1 else None), text
        assert "qcclMismatch" in said["REFUSED"] and said.get("LEFT") == ("qcclRemoteError" if rank else None), text


def sums(comm):
    return digest(comm.all_reduce(some(comm.rank)))


# ---------------------------------------------------------------- DDP and FSDP2
FEEDBACK = "allreduce: int4:feedback=on; min=0"


def small_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(300, 600), torch.nn.ReLU(), torch.nn.Linear(600, 500))


def backward(model, rank, step):
    source = torch.Generator().manual_seed(10 * step + rank)
    model(torch.randn(8, 300, generator=source)).square().mean().backward()


def rank_of_ddp():
    """Two steps with each form of the hook's state; every bucket before and after is kept in the folder."""
    dist = joined(2)
    folder, seen = os.path.dirname(sys.argv[-1]), []

    def hook(state, bucket):
        seen.append((bucket.buffer().clone(), bucket.buffer()))
        return qccl.allreduce_hook(state, bucket)
    with qccl.init_torch(policy=FEEDBACK) as alone, qccl.init_torch(policy=FEEDBACK) as beside, qccl.Stream() as stream:
        for form, state in (("alone", alone), ("stream", (beside, stream))):
            ddp = torch.nn.parallel.DistributedDataParallel(small_model(), bucket_cap_mb=0.3)
            ddp.register_comm_hook(state, hook)
            for step in range(2):
                ddp.zero_grad()
                seen.clear()
                backward(ddp, dist.get_rank(), step)
                gradients = torch.cat([p.grad.flatten() for p in ddp.parameters()]).sort()[0]
                assert torch.equal(gradients, torch.cat([after for _, after in seen]).sort()[0])
                torch.save([(b.clone(), a.clone()) for b, a in seen], f"{folder}/{form}{step}.{dist.get_rank()}")


def the_ddp_hook_averages_every_bucket_with_its_own_residuals():
    with tempfile.TemporaryDirectory() as folder:
        started(same_program("ddp", os.path.join(folder, "store")), 2)
        for form in ("alone", "stream"):
            steps = [[torch.load(f"{folder}/{form}{step}.{rank}") for rank in range(2)] for step in range(2)]
            buckets = [len(step[0]) for step in steps]
            assert buckets[1] > 1, f"{buckets} buckets"

            def again(comm):
                for step in steps:
                    for index, (before, after) in enumerate(step[comm.rank]):
                        comm.set_tensor(index)
                        assert torch.equal(comm.all_reduce(before.clone(), op="avg"), after), f"{form}, bucket {index}"
                        assert not torch.equal(before, after)
            on_ranks(2, again, policy=FEEDBACK)


def rank_of_fsdp():
    """Gradients of a sharded model: FSDP2's own, through qccl uncompressed, and compressed."""
    dist = joined(2)
    from torch.distributed.fsdp import fully_shard

    def gradients(comm):
        model = small_model()
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        if comm:
            qccl.compress_fsdp(model, comm)
        backward(model, dist.get_rank(), 0)
        return torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])
    torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    own = gradients(None)
    with qccl.init_torch(policy="min=1GiB") as comm:
        print("EXACT", torch.equal(gradients(comm), own), comm.stats()["passed"] > 0)
        comm.policy = "reducescatter: int4; min=0"
        compressed = gradients(comm)
        print("NEAR", 0 < float((compressed - own).norm() / own.norm()) < 0.2, comm.stats()["calls"])


def fsdp2_trains_through_qccl():
    for text in over_gloo("fsdp", 2):
        assert "EXACT True True" in text and "NEAR True 2" in text, text


def takes_custom_collectives():
    if not torch or not hasattr(torch.distributed, "device_mesh"):
        return False
    from torch.distributed.fsdp import FSDPModule
    return hasattr(FSDPModule, "set_custom_reduce_scatter")


def main():
    if "--rank" in sys.argv:
        globals()["rank_of_" + sys.argv[sys.argv.index("--rank") + 1]]()
        return 0
    tensors = {"numpy": numpy, "torch": torch}
    return run([
        (over_mpi_results_are_those_of_threads, {"numpy": numpy, "mpi4py": mpi4py, "mpirun": MPIRUN}),
        (over_torch_distributed_results_are_those_of_threads, tensors),
        (the_ddp_hook_averages_every_bucket_with_its_own_residuals, tensors),
    ] + ([(fsdp2_trains_through_qccl, tensors)] if takes_custom_collectives() else []))


if __name__ == "__main__":
    sys.exit(main())
