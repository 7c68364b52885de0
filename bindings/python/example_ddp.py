#!/usr/bin/env python3
"""Trains a small network on Fashion-MNIST with DistributedDataParallel, gradients averaged by qccl.

    apt-get install python3-torch python3-numpy dataset-fashion-mnist
    QCCL_LIBRARY=build/libqccl.so python3 bindings/python/example_ddp.py --policy "allreduce: int4; min=0"
    ... --policy gloo                 the same training with torch's own all-reduce

Ranks are processes, started here.  Prints the accuracy on the test images after each epoch, and what gradients took.
"""
import argparse
import gzip
import os
import tempfile
import time

import numpy
import torch
import torch.distributed as dist

import qccl

FOLDER = "/usr/share/datasets/fashion-mnist"


def load(folder, part):
    """(images, labels): float32 [n, 784] with mean 0 and deviation 1 over all pixels, int64 [n]."""
    def read(name, offset):
        with gzip.open(os.path.join(folder, f"{part}-{name}-ubyte.gz")) as f:
            return numpy.frombuffer(f.read(), numpy.uint8, offset=offset)
    labels = torch.from_numpy(read("labels-idx1", 8).astype(numpy.int64))
    images = torch.from_numpy(read("images-idx3", 16).astype(numpy.float32)).reshape(len(labels), 784)
    return (images - 72.94) / 90.02, labels


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def train(rank, options, store):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)  # weights are the same on all ranks
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.ranks)
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                                torch.nn.Linear(256, 10))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    comm = None
    if options.policy != "gloo":
        comm = qccl.init_torch(policy=options.policy, seed=options.seed)
        ddp.register_comm_hook(comm, qccl.allreduce_hook)
    images, labels = load(options.data, "train")
    tests = load(options.data, "t10k")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9)
    steps = options.epochs * -(-len(labels) // (options.ranks * options.batch))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order = torch.Generator().manual_seed(options.seed)
    begin = time.monotonic()
    for epoch in range(options.epochs):
        mine = torch.randperm(len(labels), generator=order)[rank::options.ranks]
        for batch in mine.split(options.batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(ddp(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
        if rank == 0:
            print(f"epoch {epoch + 1}\taccuracy {100 * accuracy(model, *tests):.2f} %"
                  f"\t{time.monotonic() - begin:.1f} s", flush=True)
    if comm:
        stats = comm.stats()
        if rank == 0 and stats["calls"]:
            print(f"{stats['calls']} all-reduces at {stats['raw_bytes'] / stats['wire_bytes']:.2f} times fewer bytes")
        comm.close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--policy", default="allreduce: int4; min=0",
                        help="of qccl (docs/policy.md), or gloo: without it")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images a rank learns from in a step")
    parser.add_argument("--lr", type=float, default=0.05, help="at first; a cosine takes it to 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=FOLDER, help="folder of Fashion-MNIST's four files")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.data, "train-images-idx3-ubyte.gz")):
        parser.error(f"--data {options.data}: Fashion-MNIST is not there (apt-get install dataset-fashion-mnist)")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (options, os.path.join(folder, "store")), nprocs=options.ranks)


if __name__ == "__main__":
    main()
