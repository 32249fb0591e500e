//! Libraries for HTTP and remote procedure calls over sessions of rdma-async
//!
//! Each module is one adapter in one file of at most 50 lines of code, to be copied into a program. None of them does anything about a cable that is unplugged: the
//! session waits for a cable and sends again what was lost, so the library above sees a connection that was slow for a while. Deadlines,
//! timeouts and keep-alives of the library go on meanwhile: one that is on must be longer than the outages that the program should
//! survive. The tests of this package unplug the cable in the middle of a transfer and compare each answer, in the simulator; the
//! adapters have not run on hardware.
//!
//! * [`hyper`]: servers and clients of HTTP/1 and HTTP/2, on the runtime of the node;
//! * [`tonic`]: servers and clients of gRPC, on tokio;
//! * [`tarpc`]: a transport of tarpc, one message for each request and answer, on tokio.

pub mod hyper;
pub mod tarpc;
pub mod tonic;
