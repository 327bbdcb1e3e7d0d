//! The functions of NVRTC that compile one program, from a library opened by absolute path.
//! The only unsafe code of the compiler: every call passes live pointers, and a program is
//! destroyed exactly once.
#![allow(unsafe_code)]

use super::CompileError;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

/// `nvrtcProgram`.
type Program = *mut c_void;
/// `nvrtcResult`; 0 is success.
type Status = c_int;
const COMPILATION_FAILED: Status = 6;

type SizeFn = unsafe extern "C" fn(Program, *mut usize) -> Status;
type TextFn = unsafe extern "C" fn(Program, *mut c_char) -> Status;

/// NVRTC, ready to call.
pub(super) struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    ptx_size: SizeFn,
    ptx: TextFn,
    log_size: SizeFn,
    log: TextFn,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

/// A program that is destroyed when dropped.
struct Guard<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: `program` came from `create` and nothing else destroys it.
        let _ = unsafe { (self.nvrtc.destroy)(&mut self.program) };
    }
}

impl Nvrtc {
    /// Opens NVRTC, after the builtins it would otherwise look for by bare name. Both stay open for
    /// the life of the process.
    pub(super) fn open(library: &Path, builtins: Option<&Path>) -> Result<Nvrtc, CompileError> {
        if let Some(builtins) = builtins {
            std::mem::forget(open(builtins)?);
        }
        let handle = open(library)?;
        // SAFETY: each field's signature is that of nvrtc.h, unchanged since CUDA 8, and the library
        // stays open: it is forgotten below.
        let nvrtc = unsafe {
            Nvrtc {
                version: symbol(&handle, library, c"nvrtcVersion")?,
                create: symbol(&handle, library, c"nvrtcCreateProgram")?,
                compile: symbol(&handle, library, c"nvrtcCompileProgram")?,
                ptx_size: symbol(&handle, library, c"nvrtcGetPTXSize")?,
                ptx: symbol(&handle, library, c"nvrtcGetPTX")?,
                log_size: symbol(&handle, library, c"nvrtcGetProgramLogSize")?,
                log: symbol(&handle, library, c"nvrtcGetProgramLog")?,
                destroy: symbol(&handle, library, c"nvrtcDestroyProgram")?,
                error_string: symbol(&handle, library, c"nvrtcGetErrorString")?,
            }
        };
        std::mem::forget(handle);
        Ok(nvrtc)
    }

    /// Major and minor version.
    pub(super) fn version(&self) -> Result<(i32, i32), CompileError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live integers.
        self.check("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// Compiles `source`, called `name`; gives the PTX and the log, which holds warnings.
    pub(super) fn compile(
        &self,
        source: &str,
        name: &str,
        options: &[String],
    ) -> Result<(String, String), CompileError> {
        let source = c_string(source, name)?;
        let c_name = c_string(name, name)?;
        let options =
            options.iter().map(|option| c_string(option, name)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);

        let mut program = ptr::null_mut();
        // SAFETY: the strings end in NUL and outlive the program; zero headers allow null arrays.
        let status = unsafe {
            (self.create)(
                &mut program,
                source.as_ptr(),
                c_name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        self.check("nvrtcCreateProgram", status)?;
        let guard = Guard { nvrtc: self, program };

        // SAFETY: the program is live and `options` holds `count` NUL-terminated strings.
        let status = unsafe { (self.compile)(guard.program, count, options.as_ptr()) };
        let log = self.text(&guard, self.log_size, self.log)?;
        if status == COMPILATION_FAILED {
            return Err(CompileError::Source { name: name.to_owned(), log });
        }
        self.check("nvrtcCompileProgram", status)?;
        Ok((self.text(&guard, self.ptx_size, self.ptx)?, log))
    }

    /// A text of the program, without its NUL.
    fn text(&self, guard: &Guard<'_>, size: SizeFn, fill: TextFn) -> Result<String, CompileError> {
        let mut len_bytes = 0;
        // SAFETY: the program is live and the pointer is to a live integer.
        self.check("nvrtcGet…Size", unsafe { size(guard.program, &mut len_bytes) })?;
        let mut bytes = vec![0u8; len_bytes];
        if len_bytes > 0 {
            // SAFETY: the buffer holds the number of bytes NVRTC asked for.
            self.check("nvrtcGet…", unsafe { fill(guard.program, bytes.as_mut_ptr().cast()) })?;
        }
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), CompileError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC answers every status with a static NUL-terminated string.
        let message = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(CompileError::Nvrtc { call, message: message.to_string_lossy().into_owned() })
    }
}

fn open(path: &Path) -> Result<Library, CompileError> {
    // SAFETY: the initialisers of NVIDIA's compiler libraries touch nothing of this process.
    unsafe { Library::new(path) }.map_err(|error| CompileError::Library {
        path: path.display().to_string(),
        error: error.to_string(),
    })
}

/// A function of the library.
///
/// # Safety
/// `F` is a function pointer of the C signature of `name`, and the library outlives its use.
unsafe fn symbol<F: Copy>(library: &Library, path: &Path, name: &CStr) -> Result<F, CompileError> {
    // SAFETY: the caller's two promises are what `get` asks for.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).map_err(|error| CompileError::Library {
        path: path.display().to_string(),
        error: error.to_string(),
    })
}

fn c_string(text: &str, name: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError::Source {
        name: name.to_owned(),
        log: "a NUL byte stands in the source, its name or an option".to_owned(),
    })
}
