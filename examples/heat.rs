// Heat that spreads along a rod: each step borrows its scratch array from a pool.

use std::ffi::CStr;
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_void};

#[repr(C)]
#[derive(Default)]
struct Stats {
    size: usize,
    acquires: u64,
    hits: u64,
    misses: u64,
    others: [u64; 12],
    gauges: [[u64; 2]; 6],
}

#[link(name = "cistern")]
extern "C" {
    fn cistern_pool_create(options: *const c_void) -> u64;
    fn cistern_pool_destroy(pool: u64) -> c_int;
    fn cistern_acquire_zeroed(pool: u64, bytes: usize) -> u64;
    fn cistern_buffer_data(buffer: u64) -> *mut c_void;
    fn cistern_release(buffer: u64) -> c_int;
    fn cistern_pool_stats(pool: u64, stats: *mut Stats, size: usize) -> c_int;
    fn cistern_last_error() -> *const c_char;
}

// [buffer
/// Zeros on loan; they go back when it is dropped.
struct Buffer {
    handle: u64,
    len: usize,
}

impl Buffer {
    fn zeros(pool: u64, len: usize) -> Result<Buffer, String> {
        let handle = unsafe { cistern_acquire_zeroed(pool, len * size_of::<f64>()) };
        if handle == 0 {
            let text = unsafe { CStr::from_ptr(cistern_last_error()) };
            return Err(text.to_string_lossy().into_owned());
        }
        Ok(Buffer { handle, len })
    }
    fn values(&mut self) -> &mut [f64] {
        let data = unsafe { cistern_buffer_data(self.handle) };
        unsafe { std::slice::from_raw_parts_mut(data.cast(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        unsafe { cistern_release(self.handle) };
    }
}
// ]

fn main() -> Result<(), String> {
    const CELLS: usize = 1000;
    const STEPS: usize = 200;
    let pool = unsafe { cistern_pool_create(std::ptr::null()) };
    let mut rod = Buffer::zeros(pool, CELLS)?;
    let u = rod.values();
    u[CELLS / 2] = 1.0;

    for _ in 0..STEPS {
        let mut scratch = Buffer::zeros(pool, CELLS)?;
        let next = scratch.values();
        for i in 0..CELLS {
            let (left, right) = (u[i.saturating_sub(1)], u[(i + 1).min(CELLS - 1)]);
            next[i] = u[i] + 0.25 * (left - 2.0 * u[i] + right);
        }
        u.copy_from_slice(next);
    }

    let heat: f64 = u.iter().sum();
    let warmest = u.iter().copied().fold(0.0, f64::max);
    let mut stats = Stats::default();
    unsafe { cistern_pool_stats(pool, &mut stats, size_of::<Stats>()) };
    println!("heat {heat:.4}, warmest cell {warmest:.4} after {STEPS} steps");
    println!("{} buffers: {} hits, {} misses", stats.acquires, stats.hits, stats.misses);
    let handle = rod.handle;
    drop(rod);
    if unsafe { cistern_release(handle) } != 0 {
        println!("a second release is an error");
    }
    unsafe { cistern_pool_destroy(pool) };
    Ok(())
}
