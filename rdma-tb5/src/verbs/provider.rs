//! A verbs provider, loaded at run time

#![allow(unsafe_code, reason = "loads the provider")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::{clear_errno, errno};
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, DeviceAttr, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr, RawGid,
};

/// The provider cannot be used
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is none: macOS before 26.2, Linux without rdma-core, or a wrong path
    #[error(
        "there is no verbs provider {path}: {reason}; macOS has one from 26.2 on, Linux with the package libibverbs1"
    )]
    Absent {
        /// What was tried
        path: String,
        /// What the loader says
        reason: String,
    },
    /// It is a library without the verbs
    #[error("{path} is no verbs provider: it has no {symbol}")]
    MissingSymbol {
        /// The library
        path: String,
        /// The first symbol that was missed
        symbol: &'static str,
    },
    /// Its structures are not laid out as expected
    #[error("{path} speaks another verbs ABI: {why}")]
    WrongAbi {
        /// The library
        path: String,
        /// What does not fit
        why: &'static str,
    },
}

/// The provider returned no list of devices
///
/// An empty list is not an error: the provider is there, and there is no device.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: ibv_get_device_list returned NULL, error number {errno}")]
#[non_exhaustive]
pub struct ListError {
    /// The provider
    pub path: String,
    /// The error number
    pub errno: i32,
}

/// The environment variable that names another provider.
const VARIABLE: &str = "RDMA_PROVIDER";

macro_rules! provider {
    ($(required $name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* $(optional $opt:ident: fn($($oarg:ty),*) $(-> $oret:ty)?;)*) => {
        /// The calls of a verbs provider
        pub struct Provider {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
            path: String,
            /// Unloaded last; `None` if whoever gave the calls answers for them.
            _library: Option<Library>,
        }

        impl Provider {
            /// Takes the calls that `symbol` finds
            ///
            /// # Safety
            ///
            /// What is found has the type of the verb of that name, and can be called as long as the provider exists.
            unsafe fn resolve(
                mut symbol: impl FnMut(&'static str) -> *const c_void,
                path: String,
            ) -> Result<Self, LoadError> {
                $(
                    let $name = symbol(stringify!($name));
                    if $name.is_null() {
                        return Err(LoadError::MissingSymbol { path, symbol: stringify!($name) });
                    }
                    // SAFETY: the caller's: this is a function of this type.
                    let $name = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>($name) };
                )*
                $(
                    let $opt = symbol(stringify!($opt));
                    // SAFETY: as above, or NULL, which is `None`.
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
}

impl Provider {
    /// The provider of the system, or the one that `RDMA_PROVIDER` names: `librdma.dylib` on macOS, `libibverbs.so.1` elsewhere
    ///
    /// # Errors
    ///
    /// There is none, it lacks symbols, or its structures are laid out in another way: three different errors.
    pub fn load() -> Result<Arc<Self>, LoadError> {
        match std::env::var_os(VARIABLE) {
            Some(path) => Self::load_from(Path::new(&path)),
            None => Self::load_from(Path::new(if cfg!(target_os = "macos") {
                "librdma.dylib"
            } else {
                "libibverbs.so.1"
            })),
        }
    }

    /// The provider at `path`
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_from(path: &Path) -> Result<Arc<Self>, LoadError> {
        let name = path.display().to_string();
        let absent =
            |path: String, error: libloading::Error| LoadError::Absent { path, reason: error.to_string() };
        let library = open(path).map_err(|error| absent(name.clone(), error))?;
        let symbol = |name: &'static str| {
            // SAFETY: only the address is used, and only while the library is loaded.
            let found = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            found.map_or(std::ptr::null(), |found| *found)
        };
        // SAFETY: a symbol of such a name has the type of that verb in every version of the ABI; the library stays loaded.
        let mut provider = unsafe { Self::resolve(symbol, name) }?;
        provider._library = Some(library);
        Ok(Arc::new(provider))
    }

    /// The provider whose calls `symbol` finds by their names, such as `ibv_open_device`; NULL for one that there is not
    ///
    /// For providers that are linked, and for those that watch another one or stand in for it. `name` is for messages.
    ///
    /// # Errors
    ///
    /// A verb is missing that is needed.
    ///
    /// # Safety
    ///
    /// What is found are functions of the verbs of those names, which may be called as long as the provider exists.
    pub unsafe fn from_symbols(
        name: &str,
        symbol: impl FnMut(&'static str) -> *const c_void,
    ) -> Result<Arc<Self>, LoadError> {
        // SAFETY: the caller's.
        unsafe { Self::resolve(symbol, name.to_owned()) }.map(Arc::new)
    }

    /// Where it was loaded from
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.path)
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
        clear_errno();
        // SAFETY: the call takes a place for the number of devices.
        let list = unsafe { (self.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(ListError { path: self.path.clone(), errno: errno() });
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has so many entries.
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
            // SAFETY: the provider returns a string that lives as long as the device.
            let name = unsafe { CStr::from_ptr(name) };
            if !visit(device, &name.to_string_lossy()) {
                break;
            }
        }
        // SAFETY: the list is the provider's and is freed once.
        unsafe { (self.ibv_free_device_list)(list) };
        Ok(())
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Loads with all symbols bound at once and visible to others: a lazy or local load has broken Apple's provider (reported
/// by the rmlx project)
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: loading runs the library's initialisers; a provider's have no preconditions.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: loading runs the library's initialisers; a provider's have no preconditions.
    unsafe { Library::new(path) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_not_there_says_so() {
        let error = Provider::load_from(Path::new("/nowhere/librdma.so")).unwrap_err();
        assert!(matches!(&error, LoadError::Absent { path, .. } if path == "/nowhere/librdma.so"), "{error}");
        assert!(error.to_string().contains("26.2"), "{error}");
    }

    #[test]
    fn a_library_without_verbs_says_what_it_misses() {
        let error = Provider::load_from(Path::new("libm.so.6")).unwrap_err();
        assert!(matches!(error, LoadError::MissingSymbol { symbol: "ibv_get_device_list", .. }), "{error}");
    }
}
