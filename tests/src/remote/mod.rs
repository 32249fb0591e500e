//! A device of another process or host, behind the traits of `rdma_core`
//!
//! For tests: the [conformance body](crate::conformance) opens both ends of a cable in one process, and one end may be a
//! [`RemoteDevice`]. [`serve`] runs where the device is. Each call is a request and its response over TCP, one after the other.
//!
//! Memory registered at the client has a counterpart of the same length at the server. The bytes that a request refers to travel
//! with its post, and received bytes travel with the poll that returns the completion. The server also checks that the device
//! wrote nowhere else. One-sided operations are unsupported: the client would not learn about them.
//!
//! There is no authentication: every process that reaches the server may use the device.

mod client;
mod local_device;
mod message;
mod server;

pub use client::{RemoteCompletionQueue, RemoteDevice, RemoteHost, RemoteMemoryRegion, RemoteQueuePair};
pub use local_device::{
    DEVICE_VARIABLE, END_VARIABLE, KIND_VARIABLE, LISTEN_VARIABLE, LocalDevice, PEER_VARIABLE, TRUST_VARIABLE,
};
pub use server::{Ended, serve};

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::JoinHandle;

    use rdma_core::{Cause, Error, Invalid, Verb};
    use rdma_sim::SimDevice;

    use super::message::{Refusal, Request, VERSION};
    use super::*;

    const REFUSED: Error = Error::new(Verb::OpenDevice, Cause::Invalid(Invalid::NoSuchDevice));

    /// A server for one peer, whose device cannot be opened
    #[expect(clippy::disallowed_methods, reason = "the other end has to run beside this one")]
    fn server() -> (String, JoinHandle<io::Result<Ended>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = move || serve(listener.accept()?.0, || Err::<SimDevice, _>(REFUSED));
        (address, std::thread::spawn(serve))
    }

    #[test]
    fn errors_reach_the_client_and_the_server_learns_how_the_connection_ended() {
        let (address, left) = server();
        let host = RemoteHost::connect(&address).unwrap();
        assert_eq!(host.open().err(), Some(REFUSED));
        drop(host);
        assert_eq!(left.join().unwrap().unwrap(), Ended::Closed);
        let (address, finished) = server();
        RemoteHost::connect(&address).unwrap().finish();
        assert_eq!(finished.join().unwrap().unwrap(), Ended::Finished);
        // The server has ended.
        let refused = RemoteHost::connect(&address).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("the server at {address}: ")), "{refused}");
    }

    #[test]
    fn a_server_refuses_another_version_and_ends_on_a_malformed_message() {
        let (address, ended) = server();
        let mut stream = TcpStream::connect(&address).unwrap();
        message::write(&mut stream, &Request::Hello { version: VERSION + 1 }).unwrap();
        let refused: Result<(), Refusal> = message::read(&mut stream).unwrap();
        assert!(matches!(refused, Err(Refusal::Invalid(why)) if why.contains("version")));
        message::write(&mut stream, &99_u8).unwrap();
        assert_eq!(ended.join().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the other end has to run beside this one")]
    fn calls_panic_with_the_address_once_the_server_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            message::read::<Request>(&mut stream).unwrap();
            message::write(&mut stream, &Ok::<(), Refusal>(())).unwrap();
        });
        let host = RemoteHost::connect(&address).unwrap();
        server.join().unwrap();
        for _ in 0..2 {
            let panic = catch_unwind(AssertUnwindSafe(|| host.open().map(drop))).unwrap_err();
            let why = panic.downcast_ref::<String>().unwrap();
            assert!(why.starts_with(&format!("the server at {address}")), "{why}");
        }
    }
}
