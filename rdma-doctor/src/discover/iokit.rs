//! The I/O Registry: links, services, counts of kernel objects, processes that have the driver open
//!
//! Classes and properties are named in public field notes (`AppleThunderboltIPPort`, `IOThunderboltXDomainService`,
//! `IORDMAUserClient`); `IOKitDiagnostics` is what `ioclasscount` prints. Type-checked only: never run by this project. A
//! missing property leaves its field `None`.

#![allow(unsafe_code, reason = "calls IOKit")]

use std::ffi::{CStr, c_void};

use core_foundation::base::{CFType, TCFType, kCFAllocatorDefault};
use core_foundation::dictionary::CFDictionary;
use core_foundation::number::CFNumber;
use core_foundation::string::CFString;
use io_kit_sys::types::{io_iterator_t, io_object_t};
use io_kit_sys::{
    IOIteratorNext, IOObjectConformsTo, IOObjectRelease, IORegistryCreateIterator,
    IORegistryEntryCreateCFProperty, IORegistryEntrySearchCFProperty, IORegistryGetRootEntry,
    IOServiceGetMatchingServices, IOServiceMatching, kIORegistryIterateRecursively,
};

use crate::parse::{MAX_ITEMS, short};
use crate::report::{IpLink, KernelObjects, LiveLinks};

/// The main port: `MACH_PORT_NULL` stands for it, and is what `kIOMainPortDefault` is
const MAIN_PORT: u32 = 0;

const SERVICE_PLANE: &CStr = c"IOService";

/// The protocol that `rdma` is on Thunderbolt (0xFA57)
const RDMA_PROTOCOL: i64 = 64087;

/// What is read from the registry
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// State of Thunderbolt IP on every port, and how many peers advertise `rdma`
    pub(super) live_links: Option<LiveLinks>,
    /// Counts of the objects of the RDMA driver, and the processes that have it open
    pub(super) objects: KernelObjects,
}

/// Reads the registry; it is not known whether a wedged driver can block this
pub(super) fn registry() -> Registry {
    Registry {
        live_links: live_links(),
        objects: KernelObjects { owners: driver_owners(), ..kernel_objects() },
    }
}

fn live_links() -> Option<LiveLinks> {
    let ip_links = services(c"AppleThunderboltIPPort")?
        .map(|port| IpLink {
            interface: search(&port, "BSD Name").and_then(text),
            link_status: property(&port, "IOLinkStatus").and_then(number),
            link_bits_per_second: property(&port, "IOLinkSpeed").and_then(number),
        })
        .collect();
    let advertised = services(c"IOThunderboltXDomainService")?;
    let protocols: Vec<i64> =
        advertised.filter_map(|it| property(&it, "Protocol ID").and_then(number)).collect();
    // Without a protocol number there is no telling whether a service is rdma.
    let rdma = (!protocols.is_empty()).then(|| protocols.iter().filter(|&&it| it == RDMA_PROTOCOL).count());
    Some(LiveLinks { ip_links, rdma_services: rdma.and_then(|count| count.try_into().ok()) })
}

fn kernel_objects() -> KernelObjects {
    let classes = classes();
    let count = |name| classes.as_ref().and_then(|classes| entry(classes, name)).and_then(number);
    KernelObjects {
        protection_domains: count("AppleThunderboltRDMAProtectionDomain"),
        queue_pairs: count("AppleThunderboltRDMAQueuePair"),
        owners: None,
    }
}

/// Processes that have the driver open; `None` if the kernel has no class for them
fn driver_owners() -> Option<Vec<String>> {
    const CLIENT: &CStr = c"IORDMAUserClient";
    entry(&classes()?, "IORDMAUserClient")?;
    let mut iterator: io_iterator_t = 0;
    // SAFETY: the plane is a static C string, and `iterator` is a valid place for the result.
    let status = unsafe {
        IORegistryCreateIterator(
            MAIN_PORT,
            SERVICE_PLANE.as_ptr(),
            kIORegistryIterateRecursively,
            &mut iterator,
        )
    };
    if status != 0 {
        return None;
    }
    let mut owners: Vec<String> = Objects(Object(iterator))
        // SAFETY: `object` holds a reference, and the name is a static C string.
        .filter(|object| unsafe { IOObjectConformsTo(object.0, CLIENT.as_ptr()) } != 0)
        .map(|client| property(&client, "IOUserClientCreator").and_then(text))
        .map(|name| name.unwrap_or_else(|| "a process".to_owned()))
        .take(MAX_ITEMS)
        .collect();
    owners.dedup();
    Some(owners)
}

/// The counts of live instances, by class
fn classes() -> Option<CFDictionary> {
    // SAFETY: takes no pointers; the caller owns the returned reference, and `Object` releases it.
    let root = Object(unsafe { IORegistryGetRootEntry(MAIN_PORT) });
    let diagnostics = property(&root, "IOKitDiagnostics")?.downcast_into::<CFDictionary>()?;
    entry(&diagnostics, "Classes")?.downcast_into::<CFDictionary>()
}

fn entry(dictionary: &CFDictionary, key: &str) -> Option<CFType> {
    let key = CFString::new(key);
    let value = dictionary.find(key.as_CFTypeRef())?;
    if (*value).is_null() {
        return None;
    }
    // SAFETY: values of a property list are CF objects, owned by the dictionary that is borrowed here; the wrapper retains one.
    Some(unsafe { CFType::wrap_under_get_rule(*value) })
}

/// A reference to an object of the registry
struct Object(io_object_t);

impl Drop for Object {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: `self` owns the reference and releases it once.
            unsafe { IOObjectRelease(self.0) };
        }
    }
}

/// An iterator of the registry
struct Objects(Object);

impl Iterator for Objects {
    type Item = Object;

    fn next(&mut self) -> Option<Object> {
        // SAFETY: `self` holds a reference to the iterator.
        let object = unsafe { IOIteratorNext(self.0.0) };
        (object != 0).then_some(Object(object))
    }
}

fn services(class: &CStr) -> Option<impl Iterator<Item = Object> + use<>> {
    // SAFETY: the name is a C string; the caller owns the returned dictionary.
    let matching = unsafe { IOServiceMatching(class.as_ptr()) };
    if matching.is_null() {
        return None;
    }
    let mut iterator: io_iterator_t = 0;
    // SAFETY: the call consumes the reference to the dictionary, which is not used again; `iterator` is a valid place.
    let status = unsafe { IOServiceGetMatchingServices(MAIN_PORT, matching.cast_const(), &mut iterator) };
    (status == 0).then(|| Objects(Object(iterator)).take(MAX_ITEMS))
}

fn property(object: &Object, key: &str) -> Option<CFType> {
    let key = CFString::new(key);
    // SAFETY: `object` and `key` hold references during the call.
    let value = unsafe {
        IORegistryEntryCreateCFProperty(object.0, key.as_concrete_TypeRef(), kCFAllocatorDefault, 0)
    };
    // SAFETY: the caller of a Create function owns what it returns.
    unsafe { owned(value) }
}

/// A property of an object or of one below it
fn search(object: &Object, key: &str) -> Option<CFType> {
    let key = CFString::new(key);
    let plane = SERVICE_PLANE.as_ptr();
    let recursively = kIORegistryIterateRecursively;
    // SAFETY: `object` and `key` hold references during the call, and the plane is a static C string.
    let value = unsafe {
        IORegistryEntrySearchCFProperty(
            object.0,
            plane,
            key.as_concrete_TypeRef(),
            kCFAllocatorDefault,
            recursively,
        )
    };
    // SAFETY: the caller of this Search function owns what it returns, as IOKitLib.h says.
    unsafe { owned(value) }
}

/// Takes over a reference, which may be NULL
///
/// # Safety
///
/// `value` is NULL or a CF object of which the caller owns a reference, and gives it away.
unsafe fn owned(value: *const c_void) -> Option<CFType> {
    // SAFETY: the caller's; it is not NULL.
    (!value.is_null()).then(|| unsafe { CFType::wrap_under_create_rule(value) })
}

fn text(value: CFType) -> Option<String> {
    Some(short(&value.downcast_into::<CFString>()?.to_string()))
}

fn number<N: TryFrom<i64>>(value: CFType) -> Option<N> {
    value.downcast_into::<CFNumber>()?.to_i64()?.try_into().ok()
}
