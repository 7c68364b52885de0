! Every form of the collectives in Fortran, with mpif.h (-DINTERFACE=1), `use mpi` (2) or `use mpi_f08` (3).
!
!     dropin_fortran off | on
!
! Values are small multiples of 1/256, so that sums are exact in any order.  off: every result is exact.  on: int4;
! what can be compressed is not exact, but inside the bound that follows from the quantizer's step; the rest is exact.
! TAP from rank 0.
program dropin_fortran
#if INTERFACE == 3
  use mpi_f08
#elif INTERFACE == 2
  use mpi
#endif
  implicit none
#if INTERFACE == 1
  include 'mpif.h'
#endif
  integer, parameter :: count = 3000
  integer :: rank, nranks, ierror, number = 0, failures = 0
  logical :: compresses
  real, allocatable :: in(:), out(:), exact(:), sums(:), everything(:)
  double precision :: doubles(count), dsum(count)
  integer, allocatable :: counts(:), displs(:)
  integer :: i, r, error, provided
  character(len=8) :: mode
#if INTERFACE == 3
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  type(MPI_Datatype) :: absolute
#else
  integer :: request, status(MPI_STATUS_SIZE), absolute
#endif
  integer(kind=MPI_ADDRESS_KIND) :: address(1)

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierror)
  call get_command_argument(1, mode)
  compresses = mode == 'on'
  allocate (in(count * nranks), out(count * nranks), exact(count), sums(count * nranks), everything(count * nranks))
  allocate (counts(nranks), displs(nranks))
  do i = 1, count * nranks
    in(i) = value_of(rank, i)
    sums(i) = sum_of(i)
  end do
  do r = 0, nranks - 1
    counts(r + 1) = count
    displs(r + 1) = r * count
    do i = 1, count
      everything(r * count + i) = value_of(r, i)
    end do
  end do
  exact = sums(rank * count + 1:(rank + 1) * count)

  call MPI_Allreduce(in, out, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
  call expect(out(:count), sums(:count), 'an allreduce', .true., .true.)
  call ok(error == MPI_SUCCESS, 'ierror says success')
#if INTERFACE == 3
  call MPI_Allreduce(in, out, count, MPI_REAL4, MPI_SUM, MPI_COMM_WORLD)
  call expect(out(:count), sums(:count), 'an allreduce without ierror', .true., .true.)
#endif
  out = in
  call MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  call expect(out(:count), sums(:count), 'an allreduce in place', .true., .true.)

  call MPI_Reduce_scatter_block(in, out, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  call expect(out(:count), exact, 'a reduce-scatter of blocks', .true., .false.)
  out = in
  call MPI_Reduce_scatter(MPI_IN_PLACE, out, counts, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  call expect(out(:count), exact, 'a reduce-scatter in place', .true., .false.)

  call MPI_Allgather(in, count, MPI_REAL, out, count, MPI_REAL, MPI_COMM_WORLD, ierror)
  call expect(out, everything, 'an allgather', .false., .false.)
  out(rank * count + 1:(rank + 1) * count) = in(:count)
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_REAL, MPI_COMM_WORLD, ierror)
  call expect(out, everything, 'an allgather in place', .false., .false.)
  call MPI_Allgatherv(in, count, MPI_REAL, out, counts, displs, MPI_REAL, MPI_COMM_WORLD, ierror)
  call expect(out, everything, 'an allgatherv', .false., .false.)

  call MPI_Get_address(in, address(1), ierror)
  call MPI_Type_create_hindexed(1, [count], address, MPI_REAL, absolute, ierror)
  call MPI_Type_commit(absolute, ierror)
  if (rank == 0) call MPI_Allgather(MPI_BOTTOM, 1, absolute, out, count, MPI_REAL, MPI_COMM_WORLD, ierror)
  if (rank /= 0) call MPI_Allgather(in, count, MPI_REAL, out, count, MPI_REAL, MPI_COMM_WORLD, ierror)
  call expect(out, everything, 'an allgather of which one rank gives MPI_BOTTOM', .false., .false.)
  call MPI_Type_free(absolute, ierror)

  doubles = in(:count)
  call MPI_Allreduce(doubles, dsum, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  call ok(maxval(abs(dsum - sums(:count))) == 0, 'an allreduce of doubles is exact')
  call MPI_Iallreduce(in, out, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request, ierror)
  call MPI_Wait(request, status, ierror)
  call expect(out(:count), sums(:count), 'a non-blocking allreduce', .true., .true.)
  call MPI_Ireduce_scatter_block(in, out, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request, ierror)
  call MPI_Wait(request, status, ierror)
  call expect(out(:count), exact, 'a non-blocking reduce-scatter', .true., .false.)
  call MPI_Iallgatherv(in, count, MPI_REAL, out, counts, displs, MPI_REAL, MPI_COMM_WORLD, request, ierror)
  call MPI_Wait(request, status, ierror)
  call expect(out, everything, 'a non-blocking allgatherv', .false., .false.)
  call MPI_Finalize(ierror)
  if (rank == 0) write (*, '(a,i0)') '1..', number
  if (rank == 0 .and. failures > 0) stop 1

contains

  ! The i-th value of a rank.
  real function value_of(r, i)
    integer, intent(in) :: r, i
    value_of = real(mod(1103 * i + 7919 * r + 13 * i * r, 511) - 255) / 256.0
  end function

  real function sum_of(i)
    integer, intent(in) :: i
    integer :: r
    sum_of = 0
    do r = 0, nranks - 1
      sum_of = sum_of + value_of(r, i)
    end do
  end function

  subroutine ok(here, sentence)
    logical, intent(in) :: here
    character(len=*), intent(in) :: sentence
    integer :: mine, all
    mine = merge(1, 0, here)
    call MPI_Allreduce(mine, all, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierror)
    number = number + 1
    if (all == 0) failures = failures + 1
    if (rank == 0) write (*, '(a,i0,2a)') merge('ok     ', 'not ok ', all == 1), number, ' - ', sentence
  end subroutine

  ! Values are at most 1, a step is a seventh of the largest, rounded up to a bfloat16; `sums` says how often a value
  ! was encoded: on every rank that is added, and the sum again.
  subroutine expect(result, exact, what, added, again)
    real, intent(in) :: result(:), exact(:)
    character(len=*), intent(in) :: what
    logical, intent(in) :: added, again
    double precision :: step, bound
    integer :: ranks
    ranks = merge(nranks, 1, added)
    step = (1 + 2d0**(-7)) / 7
    bound = ranks * step + 2d0 * ranks * ranks * epsilon(1.0)
    if (again) bound = bound + (ranks + bound) * step
    if (compresses) then
      call ok(any(result /= exact) .and. all(abs(dble(result) - dble(exact)) <= bound), &
              what // ' is compressed, and inside the bound')
    else
      call ok(all(result == exact), what // ' is exact')
    end if
  end subroutine
end program
