//! A verbs provider, loaded at run time
#![allow(unsafe_code, reason = "loads a library and calls its functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use crate::errno;
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, DeviceAttr, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr, RawGid,
};

/// A provider that cannot be used
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such library: macOS before 26.2, Linux without rdma-core, or a wrong path
    #[error(
        "the verbs provider {path} cannot be loaded: {reason}; macOS has one from 26.2 on, Linux with the package libibverbs1"
    )]
    Absent {
        /// The library
        path: String,
        /// The message of the loader
        reason: String,
    },
    /// The library does not export the verbs
    #[error("{path} is no verbs provider: it has no {symbol}; name another library in RDMA_PROVIDER")]
    MissingSymbol {
        /// The library
        path: String,
        /// The first symbol that is missing
        symbol: &'static str,
    },
    /// The structures of the library have another layout
    #[error("{path} has another verbs ABI: {why}")]
    WrongAbi {
        /// The library
        path: String,
        /// What differs
        why: &'static str,
    },
}

/// The provider returned no list of devices
///
/// An empty list is not an error: the provider is there, and there is no device.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: ibv_get_device_list returned NULL, error number {errno}{}", hint(*errno))]
#[non_exhaustive]
pub struct ListError {
    /// The provider
    pub path: String,
    /// The error number
    pub errno: i32,
}

const fn hint(errno: i32) -> &'static str {
    if errno == libc::ENOSYS {
        ": the kernel has no RDMA; on Linux, load the module of an adapter, such as rdma_rxe"
    } else {
        ""
    }
}

/// The environment variable that names another provider.
const VARIABLE: &str = "RDMA_PROVIDER";

macro_rules! provider {
    ($(required $name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* $(optional $opt:ident: fn($($oarg:ty),*) $(-> $oret:ty)?;)*) => {
        /// The functions of a verbs provider
        ///
        /// ```
        /// use rdma_tb5::{LoadError, Provider};
        ///
        /// // SAFETY: there are no functions.
        /// let error = unsafe { Provider::from_symbols("an empty provider", |_| std::ptr::null()) }.unwrap_err();
        /// assert!(matches!(error, LoadError::MissingSymbol { symbol: "ibv_get_device_list", .. }));
        /// ```
        pub struct Provider {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
            path: String,
            /// Keeps the functions loaded; `None` if the caller of `from_symbols` does.
            _library: Option<Library>,
        }

        impl Provider {
            /// Looks up all functions with `symbol`
            ///
            /// # Safety
            ///
            /// A pointer that `symbol` returns is NULL, or a function of the type of the verb of that name that can be called as long as
            /// the provider exists.
            unsafe fn resolve(
                mut symbol: impl FnMut(&'static str) -> *const c_void,
                path: String,
            ) -> Result<Self, LoadError> {
                $(
                    let $name = symbol(stringify!($name));
                    if $name.is_null() {
                        return Err(LoadError::MissingSymbol { path, symbol: stringify!($name) });
                    }
                    // SAFETY: it is not NULL, and the caller promises that it is a function of this type.
                    let $name = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>($name) };
                )*
                $(
                    let $opt = symbol(stringify!($opt));
                    // SAFETY: NULL is `None`; otherwise the caller promises that it is a function of this type.
                    let $opt = unsafe { std::mem::transmute::<*const c_void, Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>>($opt) };
                )*
                Ok(Self { $($name,)* $($opt,)* path, _library: None })
            }
        }
    };
}

provider! {
    required ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
    required ibv_free_device_list: fn(*mut *mut Device);
    required ibv_get_device_name: fn(*mut Device) -> *const c_char;
    required ibv_open_device: fn(*mut Device) -> *mut Context;
    required ibv_close_device: fn(*mut Context) -> c_int;
    required ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    required ibv_query_gid: fn(*mut Context, u8, c_int, *mut RawGid) -> c_int;
    required ibv_alloc_pd: fn(*mut Context) -> *mut Pd;
    required ibv_dealloc_pd: fn(*mut Pd) -> c_int;
    required ibv_reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    required ibv_dereg_mr: fn(*mut Mr) -> c_int;
    required ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    required ibv_destroy_cq: fn(*mut Cq) -> c_int;
    required ibv_create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    required ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    required ibv_destroy_qp: fn(*mut Qp) -> c_int;
    optional ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    optional ibv_query_qp: fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
    optional ibv_create_comp_channel: fn(*mut Context) -> *mut CompChannel;
    optional ibv_destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    optional ibv_get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    optional ibv_ack_cq_events: fn(*mut Cq, c_uint);
    optional rdma_sim_profile: fn(*mut c_char, usize) -> usize;
}

impl Provider {
    /// Loads the provider of the system: `/usr/lib/librdma.dylib` on macOS, `libibverbs.so.1` elsewhere, or the library that the environment
    /// variable `RDMA_PROVIDER` names
    ///
    /// On macOS it is named by its path: cargo has libraries looked for among what it built, where the simulated provider has the same name.
    ///
    /// # Errors
    ///
    /// [`LoadError::Absent`] if there is no such library, and [`LoadError::MissingSymbol`] if it is not a verbs provider.
    pub fn load() -> Result<Arc<Self>, LoadError> {
        let system = if cfg!(target_os = "macos") { "/usr/lib/librdma.dylib" } else { "libibverbs.so.1" };
        let path = std::env::var_os(VARIABLE).unwrap_or_else(|| system.into());
        // SAFETY: the library is the system's, or the user's choice for this process, as those of the dynamic loader's variables are.
        unsafe { Self::load_from(Path::new(&path)) }
    }

    /// Loads the provider at `path`
    ///
    /// # Errors
    ///
    /// [`LoadError::Absent`] if there is no such library, and [`LoadError::MissingSymbol`] if it is not a verbs provider.
    ///
    /// # Safety
    ///
    /// A library at `path` may be loaded into this process, and its functions with the names of verbs are verbs.
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use rdma_tb5::{LoadError, Provider};
    ///
    /// // SAFETY: there is no such library.
    /// let error = unsafe { Provider::load_from(Path::new("/nowhere/librdma.so")) }.unwrap_err();
    /// assert!(matches!(&error, LoadError::Absent { path, .. } if path == "/nowhere/librdma.so"));
    /// ```
    pub unsafe fn load_from(path: &Path) -> Result<Arc<Self>, LoadError> {
        let name = path.display().to_string();
        // SAFETY: the caller's.
        let library = unsafe { open(path) }
            .map_err(|error| LoadError::Absent { path: name.clone(), reason: error.to_string() })?;
        let symbol = |name: &'static str| {
            // SAFETY: only the address is used, and only while the library is loaded.
            let found = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            found.map_or(std::ptr::null(), |found| *found)
        };
        // SAFETY: the caller promises that functions of these names are verbs, whose types are the same in every version of the ABI. The
        // provider keeps the library loaded.
        let mut provider = unsafe { Self::resolve(symbol, name) }?;
        provider._library = Some(library);
        Ok(Arc::new(provider))
    }

    /// A provider from functions that `symbol` looks up by their names, such as `ibv_open_device`; it returns NULL for a missing one
    ///
    /// For providers that are linked, that observe another one, or that stand in for one in a test. `name` is used in messages.
    ///
    /// # Errors
    ///
    /// [`LoadError::MissingSymbol`] if `symbol` returns NULL for a verb that is needed.
    ///
    /// # Safety
    ///
    /// A pointer that `symbol` returns is NULL, or the verb of that name, which may be called as long as the provider exists.
    pub unsafe fn from_symbols(
        name: &str,
        symbol: impl FnMut(&'static str) -> *const c_void,
    ) -> Result<Arc<Self>, LoadError> {
        // SAFETY: the caller's.
        unsafe { Self::resolve(symbol, name.to_owned()) }.map(Arc::new)
    }

    /// The path it was loaded from, or the name that was given for it
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.path)
    }

    /// The profile that its devices follow, such as `tb5`, if it is the simulated provider of this project; `None` for all others
    ///
    /// A profile file appears as `tb5 with changes`, by the name of its base.
    pub fn simulated_profile(&self) -> Option<String> {
        let profile = self.rdma_sim_profile?;
        let mut text = [0_u8; 64];
        // SAFETY: the function writes at most so many bytes there, and returns how many it has.
        let len = unsafe { profile(text.as_mut_ptr().cast(), text.len()) };
        Some(String::from_utf8_lossy(&text[..len.min(text.len())]).into_owned())
    }

    pub(crate) fn wrong_abi(&self, why: &'static str) -> LoadError {
        LoadError::WrongAbi { path: self.path.clone(), why }
    }

    /// The names of the devices that the provider lists
    ///
    /// # Errors
    ///
    /// [`ListError`] if the provider returns no list.
    pub fn devices(&self) -> Result<Vec<String>, ListError> {
        let mut names = Vec::new();
        self.each_device(|_, name| {
            names.push(name.to_owned());
            true
        })?;
        Ok(names)
    }

    /// Calls `visit` with each device and its name until it returns `false`; the pointer is valid during the call
    pub(crate) fn each_device(
        &self,
        mut visit: impl FnMut(*mut Device, &str) -> bool,
    ) -> Result<(), ListError> {
        let mut count = 0;
        errno::clear();
        // SAFETY: `count` is a valid place for the number of devices.
        let list = unsafe { (self.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(ListError { path: self.path.clone(), errno: errno::last() });
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            let entry = unsafe { list.add(index) };
            // SAFETY: as above.
            let device = unsafe { *entry };
            if device.is_null() {
                break;
            }
            // SAFETY: the device is of the list, which is not freed yet.
            let name = unsafe { (self.ibv_get_device_name)(device) };
            if name.is_null() {
                continue;
            }
            // SAFETY: the provider returns a string that lives as long as the device, which lives as long as its list.
            let name = unsafe { CStr::from_ptr(name) };
            if !visit(device, &name.to_string_lossy()) {
                break;
            }
        }
        // SAFETY: the list came from this provider, is freed once, and its entries are not used again.
        unsafe { (self.ibv_free_device_list)(list) };
        Ok(())
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Loads a library with all symbols bound at once and visible to other libraries: a lazy or local load was reported to break Apple's
/// provider (by the rmlx project)
///
/// # Safety
///
/// The initialisers of the library may run in this process.
unsafe fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: the caller's.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) }.map(Library::from)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn load(path: &str) -> LoadError {
        // SAFETY: the mathematical functions of C may be loaded, and contain no verbs.
        unsafe { Provider::load_from(Path::new(path)) }.unwrap_err()
    }

    #[test]
    fn a_missing_library_is_an_error_with_its_path_and_the_versions_that_have_one() {
        let error = load("/nowhere/librdma.so");
        assert!(matches!(&error, LoadError::Absent { path, .. } if path == "/nowhere/librdma.so"), "{error}");
        assert!(error.to_string().contains("26.2"), "{error}");
    }

    #[test]
    fn a_library_without_verbs_is_an_error_with_the_missing_symbol() {
        let error = load("libm.so.6");
        assert!(matches!(error, LoadError::MissingSymbol { symbol: "ibv_get_device_list", .. }), "{error}");
    }
    #[test]
    fn a_list_that_is_null_without_rdma_in_the_kernel_says_so() {
        let text = |errno| ListError { path: "libibverbs.so.1".to_owned(), errno }.to_string();
        assert!(text(libc::ENOSYS).contains("the kernel has no RDMA"));
        assert!(text(libc::EPERM).ends_with("error number 1"));
    }
}
