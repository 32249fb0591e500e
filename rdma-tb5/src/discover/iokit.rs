//! What the I/O Registry knows: links, services, counts, owners
//!
//! Classes and properties are named in public field notes (`AppleThunderboltIPPort`, `IOThunderboltXDomainService`,
//! `IORDMAUserClient`); `IOKitDiagnostics` is what `ioclasscount` prints. Type-checked only: never run by this project. A
//! property that is not there is knowledge that is missing.

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

use super::parse::{MAX_ITEMS, short};
use super::{IpLink, KernelObjects, LiveLinks};

/// The main port: `MACH_PORT_NULL` stands for it, and is what `kIOMainPortDefault` is
const MAIN_PORT: u32 = 0;

const SERVICE_PLANE: &CStr = c"IOService";

/// The protocol that `rdma` is on Thunderbolt (0xFA57)
const RDMA_PROTOCOL: i64 = 64087;

/// All of it
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// State of Thunderbolt IP on every port, and how many peers advertise `rdma`
    pub(super) live_links: Option<LiveLinks>,
    /// How many objects of the RDMA driver live, and who has it open
    pub(super) objects: KernelObjects,
}

/// Reads the registry; whether a wedged driver can hold this up is not known
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
            link_status: property(&port, "IOLinkStatus").and_then(number).and_then(|n| n.try_into().ok()),
            link_bits_per_second: property(&port, "IOLinkSpeed")
                .and_then(number)
                .and_then(|n| n.try_into().ok()),
        })
        .collect();
    let advertised = services(c"IOThunderboltXDomainService")?;
    let protocols: Vec<_> =
        advertised.filter_map(|it| property(&it, "Protocol ID").and_then(number)).collect();
    // That none is rdma is known only if any told its protocol.
    let rdma = (!protocols.is_empty()).then(|| protocols.iter().filter(|&&it| it == RDMA_PROTOCOL).count());
    Some(LiveLinks { ip_links, rdma_services: rdma.and_then(|count| count.try_into().ok()) })
}

fn kernel_objects() -> KernelObjects {
    let classes = classes();
    let count = |name| classes.as_ref().and_then(|classes| entry(classes, name)).and_then(number);
    KernelObjects {
        protection_domains: count("AppleThunderboltRDMAProtectionDomain").and_then(|n| n.try_into().ok()),
        queue_pairs: count("AppleThunderboltRDMAQueuePair").and_then(|n| n.try_into().ok()),
        owners: None,
    }
}

/// Processes that have the driver open; `None` if the kernel does not know the class that would tell
fn driver_owners() -> Option<Vec<String>> {
    const CLIENT: &CStr = c"IORDMAUserClient";
    entry(&classes()?, "IORDMAUserClient")?;
    let mut iterator: io_iterator_t = 0;
    // SAFETY: the plane is a C string that lives for ever, and the iterator is written to a place of ours.
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
        // SAFETY: the object is held, and the name is a C string that lives for ever.
        .filter(|object| unsafe { IOObjectConformsTo(object.0, CLIENT.as_ptr()) } != 0)
        .map(|client| property(&client, "IOUserClientCreator").and_then(text))
        .map(|name| name.unwrap_or_else(|| "a process".to_owned()))
        .take(MAX_ITEMS)
        .collect();
    owners.dedup();
    Some(owners)
}

/// Live instances by class
fn classes() -> Option<CFDictionary> {
    // SAFETY: takes no pointers; the reference it returns is ours to release, which `Object` does.
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
    // SAFETY: values of a property list are CF objects, owned by the dictionary that is borrowed here; this retains one.
    Some(unsafe { CFType::wrap_under_get_rule(*value) })
}

/// A reference to an object of the registry
struct Object(io_object_t);

impl Drop for Object {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: the reference was handed to us and is given back once.
            unsafe { IOObjectRelease(self.0) };
        }
    }
}

/// An iterator of the registry
struct Objects(Object);

impl Iterator for Objects {
    type Item = Object;

    fn next(&mut self) -> Option<Object> {
        // SAFETY: the iterator is held for as long as `self` lives.
        let object = unsafe { IOIteratorNext(self.0.0) };
        (object != 0).then_some(Object(object))
    }
}

fn services(class: &CStr) -> Option<impl Iterator<Item = Object> + use<>> {
    // SAFETY: the name is a C string; the dictionary it returns is ours until the next call takes it.
    let matching = unsafe { IOServiceMatching(class.as_ptr()) };
    if matching.is_null() {
        return None;
    }
    let mut iterator: io_iterator_t = 0;
    // SAFETY: takes over the dictionary, and writes the iterator to a place of ours.
    let status = unsafe { IOServiceGetMatchingServices(MAIN_PORT, matching.cast_const(), &mut iterator) };
    (status == 0).then(|| Objects(Object(iterator)).take(MAX_ITEMS))
}

fn property(object: &Object, key: &str) -> Option<CFType> {
    let key = CFString::new(key);
    // SAFETY: object and key are held for the length of the call.
    let value = unsafe {
        IORegistryEntryCreateCFProperty(object.0, key.as_concrete_TypeRef(), kCFAllocatorDefault, 0)
    };
    owned(value)
}

/// A property of an object or of what is below it
fn search(object: &Object, key: &str) -> Option<CFType> {
    let key = CFString::new(key);
    let plane = SERVICE_PLANE.as_ptr();
    let recursively = kIORegistryIterateRecursively;
    // SAFETY: object and key are held for the length of the call, the plane is a C string that lives for ever.
    let value = unsafe {
        IORegistryEntrySearchCFProperty(
            object.0,
            plane,
            key.as_concrete_TypeRef(),
            kCFAllocatorDefault,
            recursively,
        )
    };
    owned(value)
}

fn owned(value: *const c_void) -> Option<CFType> {
    if value.is_null() {
        return None;
    }
    // SAFETY: the registry returns a reference that the caller must release; the wrapper does.
    Some(unsafe { CFType::wrap_under_create_rule(value) })
}

fn text(value: CFType) -> Option<String> {
    Some(short(&value.downcast_into::<CFString>()?.to_string()))
}

fn number(value: CFType) -> Option<i64> {
    value.downcast_into::<CFNumber>()?.to_i64()
}
