! Heat that spreads along a rod: each step borrows its scratch array from a pool.

! [module
module cistern
    use, intrinsic :: iso_c_binding
    implicit none

    type, bind(c) :: cistern_stats
        integer(c_size_t) :: size
        integer(c_int64_t) :: acquires, hits, misses, grows, releases, evictions, failures
        integer(c_int64_t) :: evicted_for_limit(5), moves, moved_bytes, missed_bytes
        integer(c_int64_t) :: gauges(2, 6)
    end type

    interface
        integer(c_int64_t) function cistern_pool_create(options) bind(c)
            import
            type(c_ptr), value :: options
        end function
        integer(c_int) function cistern_pool_destroy(pool) bind(c)
            import
            integer(c_int64_t), value :: pool
        end function
        integer(c_int64_t) function cistern_acquire(pool, bytes) bind(c)
            import
            integer(c_int64_t), value :: pool
            integer(c_size_t), value :: bytes
        end function
        type(c_ptr) function cistern_buffer_data(buffer) bind(c)
            import
            integer(c_int64_t), value :: buffer
        end function
        integer(c_int) function cistern_release(buffer) bind(c)
            import
            integer(c_int64_t), value :: buffer
        end function
        integer(c_int) function cistern_pool_stats(pool, stats, size) bind(c)
            import
            integer(c_int64_t), value :: pool
            type(cistern_stats), intent(out) :: stats
            integer(c_size_t), value :: size
        end function
    end interface
end module
! ]

program heat
    use cistern
    implicit none
    integer, parameter :: cells = 1000, steps = 200
    integer(c_int64_t) :: pool, rod, scratch
    real(c_double), pointer :: u(:), next(:)
    type(cistern_stats) :: stats
    integer :: i

    pool = cistern_pool_create(c_null_ptr)
    call borrow(rod, u)
    u = 0
    u(cells / 2) = 1

    ! [loop
    do i = 1, steps
        call borrow(scratch, next)
        next(1) = u(1) + 0.25d0 * (u(2) - u(1))
        next(2:cells - 1) = u(2:cells - 1) &
            + 0.25d0 * (u(1:cells - 2) - 2 * u(2:cells - 1) + u(3:cells))
        next(cells) = u(cells) + 0.25d0 * (u(cells - 1) - u(cells))
        u = next
        call check(cistern_release(scratch)) ! the next step gets the same bytes
    end do
    ! ]

    call check(cistern_pool_stats(pool, stats, c_sizeof(stats)))
    print '(a, f6.4, a, f6.4, a, i0, a)', 'heat ', sum(u), ', warmest cell ', maxval(u), &
        ' after ', steps, ' steps'
    print '(i0, a, i0, a, i0, a)', stats%acquires, ' buffers: ', stats%hits, ' hits, ', &
        stats%misses, ' misses'
    call check(cistern_release(rod))
    if (cistern_release(rod) /= 0) print '(a)', 'a second release is an error'
    call check(cistern_pool_destroy(pool))

contains

    ! [borrow
    subroutine borrow(buffer, array)
        integer(c_int64_t), intent(out) :: buffer
        real(c_double), pointer, intent(out) :: array(:)
        buffer = cistern_acquire(pool, cells * c_sizeof(0d0))
        if (buffer == 0) error stop 'the pool has no room'
        call c_f_pointer(cistern_buffer_data(buffer), array, [cells])
    end subroutine
    ! ]

    subroutine check(status)
        integer(c_int), intent(in) :: status
        if (status /= 0) error stop 'a call failed'
    end subroutine
end program
