//! The CUDA driver through cudarc: one context and one stream a process, one slab of device memory
//! a backend. The only unsafe code of the backend. Its one argument for soundness: kernels reach
//! device memory alone, never the host's, and what lies in the slab is only ever read as bytes, of
//! which any are valid.
//!
//! Backends of one process take turns ([`turn`]): making a stream or a module waits for the whole
//! context, which breaks a capture under way on another thread, and timings must not overlap. The
//! context is never given up, for a thread that once used it would go on with a dead one.
#![allow(unsafe_code)]

use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaStream, DriverError, result, sys,
};
use cudarc::nvrtc::Ptx;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What the process shares of the device.
struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// A device, ready to run.
pub(super) struct Driver {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    slab: sys::CUdeviceptr,
    slab_bytes: u64,
}

/// The right to use the device, until dropped.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // The lock guards no data, so a panic under it left nothing half-changed.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loaded entry.
pub(super) type Function = CudaFunction;

/// A loaded module.
pub(super) type LoadedModule = Arc<CudaModule>;

/// One launch, encoded.
pub(super) struct Prepared {
    /// The entry.
    pub function: Function,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub dynamic_shared_bytes: u32,
    /// Parameters, laid out as the entry declares them.
    pub parameters: Vec<u8>,
    /// Where each parameter starts in `parameters`.
    pub offsets: Vec<usize>,
}

impl Device {
    /// Opens the driver and the first device. The error is one paragraph.
    fn open() -> Result<Device, String> {
        // SAFETY: the driver library's initialisers touch nothing of this process.
        if !unsafe { sys::is_culib_present() } {
            return Err("the CUDA driver library (libcuda.so.1) cannot be opened; it comes with NVIDIA's kernel \
                        driver, and a container must be started with access to the GPU"
                .to_owned());
        }
        let failed = |doing: &str, error: DriverError| format!("{doing} failed: {}", words(error));
        result::init().map_err(|error| failed("starting the CUDA driver", error))?;
        match CudaContext::device_count() {
            Ok(0) => {
                return Err(
                    "the CUDA driver sees no device; is CUDA_VISIBLE_DEVICES empty?".to_owned()
                );
            }
            Ok(_) => {}
            Err(error) => return Err(failed("counting CUDA devices", error)),
        }
        let context =
            CudaContext::new(0).map_err(|error| failed("opening CUDA device 0", error))?;
        let (major, minor) = context
            .compute_capability()
            .map_err(|error| failed("asking for the compute capability", error))?;
        if major < 8 {
            return Err(format!(
                "CUDA device 0 has compute capability {major}.{minor}; the kernels need 8.0 or newer"
            ));
        }
        let stream = context.new_stream().map_err(|error| failed("making a CUDA stream", error))?;
        Ok(Device { context, stream })
    }
}

impl Driver {
    /// The process's device, opened once; the error is one paragraph.
    pub(super) fn open() -> Result<Driver, String> {
        static DEVICE: OnceLock<Result<Device, String>> = OnceLock::new();
        let device = DEVICE.get_or_init(Device::open).as_ref().map_err(Clone::clone)?;
        let (context, stream) = (device.context.clone(), device.stream.clone());
        Ok(Driver { context, stream, slab: 0, slab_bytes: 0 })
    }

    /// Name and compute capability of the device.
    pub(super) fn describe(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "a CUDA device".to_owned());
        match self.context.compute_capability() {
            Ok((major, minor)) => format!("{name}, compute capability {major}.{minor}"),
            Err(_) => name,
        }
    }

    /// Compute capability of the device.
    pub(super) fn compute_capability(&self) -> Result<(i32, i32), DriverError> {
        self.context.compute_capability()
    }

    /// Device address of the slab.
    pub(super) fn slab(&self) -> u64 {
        self.slab
    }

    /// Makes the slab hold at least `len_bytes`; its contents are lost when it grows.
    pub(super) fn reserve(&mut self, len_bytes: u64) -> Result<(), DriverError> {
        if len_bytes <= self.slab_bytes {
            return Ok(());
        }
        self.release()?;
        self.context.bind_to_thread()?;
        // Powers of two, so that a row of growing cases does not allocate for each.
        let bytes = if len_bytes <= 1 << 30 {
            len_bytes.next_power_of_two().max(1 << 20)
        } else {
            len_bytes
        };
        // SAFETY: the context is current; the memory is written before it is read (`upload`, `fill`),
        // and as bytes even stale contents would be valid.
        self.slab = unsafe { result::malloc_sync(bytes as usize) }?;
        self.slab_bytes = bytes;
        Ok(())
    }

    /// Frees the slab.
    pub(super) fn release(&mut self) -> Result<(), DriverError> {
        let slab = std::mem::take(&mut self.slab);
        self.slab_bytes = 0;
        if slab == 0 {
            return Ok(());
        }
        self.context.bind_to_thread()?;
        self.stream.synchronize()?;
        // SAFETY: `slab` came from `malloc_sync`, was taken out of the driver, and no work is pending.
        unsafe { result::free_sync(slab) }
    }

    /// Device address of a range of the slab, which must lie inside it.
    fn at(&self, range: Range<u64>) -> sys::CUdeviceptr {
        assert!(
            range.start <= range.end && range.end <= self.slab_bytes,
            "{range:?} leaves the slab"
        );
        self.slab + range.start
    }

    /// Copies bytes to the slab and waits.
    pub(super) fn upload(&self, position: u64, bytes: &[u8]) -> Result<(), DriverError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread()?;
        let target = self.at(position..position + bytes.len() as u64);
        // SAFETY: the target holds `bytes.len()` bytes (checked above), and `bytes` lives until the
        // stream has finished, below.
        unsafe { result::memcpy_htod_async(target, bytes, self.stream.cu_stream()) }?;
        self.stream.synchronize()
    }

    /// Copies bytes from the slab, after everything launched before.
    pub(super) fn download(&self, position: u64, bytes: &mut [u8]) -> Result<(), DriverError> {
        if bytes.is_empty() {
            return self.stream.synchronize();
        }
        self.context.bind_to_thread()?;
        let source = self.at(position..position + bytes.len() as u64);
        // SAFETY: the source holds `bytes.len()` bytes (checked above), any bytes are valid `u8`s, and
        // `bytes` is borrowed until the stream has finished, below.
        unsafe { result::memcpy_dtoh_async(bytes, source, self.stream.cu_stream()) }?;
        self.stream.synchronize()
    }

    /// Fills a range of the slab with a repeating pattern of 1, 2, 4 or 8 bytes; an empty pattern is
    /// zero. The range starts at a multiple of the pattern; a shorter last repetition is cut.
    /// Gives `false`, and does nothing, for another length of pattern.
    pub(super) fn fill(&self, range: Range<u64>, pattern: &[u8]) -> Result<bool, DriverError> {
        self.context.bind_to_thread()?;
        let target = self.at(range.clone());
        let stream = self.stream.cu_stream();
        let len_bytes = (range.end - range.start) as usize;
        let width = pattern.len().max(1);
        let count = len_bytes / width;
        // SAFETY (of each memset): `target` starts `count · width` bytes of the slab, checked by `at`.
        let done = match *pattern {
            _ if count == 0 => Ok(()),
            [] => unsafe { sys::cuMemsetD8Async(target, 0, count, stream) }.result(),
            [a] => unsafe { sys::cuMemsetD8Async(target, a, count, stream) }.result(),
            [a, b] => {
                unsafe { sys::cuMemsetD16Async(target, u16::from_le_bytes([a, b]), count, stream) }
                    .result()
            }
            [a, b, c, d] => unsafe {
                sys::cuMemsetD32Async(target, u32::from_le_bytes([a, b, c, d]), count, stream)
            }
            .result(),
            [a, b, c, d, e, f, g, h] => {
                let low = u32::from_le_bytes([a, b, c, d]);
                let high = u32::from_le_bytes([e, f, g, h]);
                // Columns of 4 bytes at a pitch of 8.
                unsafe { sys::cuMemsetD2D32Async(target, 8, low, 1, count, stream) }
                    .result()
                    .and_then(|()| {
                        // SAFETY: as above; the last column ends with the last repetition.
                        unsafe { sys::cuMemsetD2D32Async(target + 4, 8, high, 1, count, stream) }
                            .result()
                    })
            }
            _ => return Ok(false),
        };
        done?;
        let rest = len_bytes - count * width;
        self.upload(range.end - rest as u64, pattern.get(..rest).unwrap_or(&[]))?;
        Ok(true)
    }

    /// Compiles PTX for the device.
    pub(super) fn load(&self, ptx: &str) -> Result<LoadedModule, DriverError> {
        // `load_module` would panic at a NUL byte.
        self.context.load_module(Ptx::from_src(ptx.replace('\0', " ")))
    }

    /// An entry of a module, allowed the dynamic shared memory it asks for.
    pub(super) fn function(
        &self,
        module: &LoadedModule,
        entry: &str,
        dynamic_shared_bytes: u32,
    ) -> Result<Function, DriverError> {
        let function = module.load_function(entry)?;
        // Up to 48 KiB need no permission.
        if dynamic_shared_bytes > 48 << 10 {
            let most =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(most, i32::try_from(dynamic_shared_bytes).unwrap_or(i32::MAX))?;
        }
        Ok(function)
    }

    /// Puts a launch on the stream.
    pub(super) fn launch(&self, prepared: &Prepared) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        let mut parameters: Vec<*mut c_void> = prepared
            .offsets
            .iter()
            .map(|&offset| prepared.parameters[offset..].as_ptr().cast_mut().cast())
            .collect();
        let [gx, gy, gz] = prepared.grid;
        let [bx, by, bz] = prepared.block;
        // SAFETY: the function belongs to this context and keeps its module loaded; the driver copies
        // each parameter before it returns, and reads from its pointer as many bytes as the entry
        // declares, which the encoder laid out from the same declaration; the kernel reaches device
        // memory alone (module header).
        unsafe {
            result::launch_kernel(
                prepared.function.cu_function(),
                (gx, gy, gz),
                (bx, by, bz),
                prepared.dynamic_shared_bytes,
                self.stream.cu_stream(),
                &mut parameters,
            )
        }
    }

    /// Waits for everything on the stream.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        self.stream.synchronize()
    }

    /// Captures the launches into a graph; nothing runs.
    pub(super) fn capture(&self, launches: &[Prepared]) -> Result<Option<CudaGraph>, DriverError> {
        self.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let launched: Result<(), DriverError> =
            launches.iter().try_for_each(|launch| self.launch(launch));
        // The capture must end even when a launch was refused.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        launched?;
        graph
    }

    /// Time of one run of the launches on the device, in milliseconds.
    pub(super) fn time_ms(&self, launches: &[Prepared]) -> Result<f32, DriverError> {
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.context.new_event(timed)?;
        let end = self.context.new_event(timed)?;
        start.record(&self.stream)?;
        launches.iter().try_for_each(|launch| self.launch(launch))?;
        end.record(&self.stream)?;
        end.synchronize()?;
        start.elapsed_ms(&end)
    }
}

/// CUDA's name and words for an error.
pub(super) fn words(error: DriverError) -> String {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.ok().map(|text| text.to_string_lossy().into_owned())
    };
    match (text(error.error_name()), text(error.error_string())) {
        (Some(name), Some(string)) => format!("{name} ({string})"),
        (Some(name), None) => name,
        _ => format!("{:?}", error.0),
    }
}
