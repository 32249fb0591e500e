//! Verbs that a fault can slow down

use std::fmt;
use std::time::Duration;

use rdma_core::Verb;

/// A verb of connecting or of teardown, a post or a poll
///
/// ```
/// use rdma_core::Verb;
/// use rdma_sim::SlowableVerb;
///
/// let verb = SlowableVerb::new(Verb::DestroyQp).expect("it is one of teardown");
/// assert_eq!(verb.to_string(), "destroy_qp");
/// assert_eq!(verb.verb(), Verb::DestroyQp);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlowableVerb(Verb);

/// A verb, and how much longer it takes than usual
///
/// ```
/// use rdma_sim::FaultPlan;
///
/// let text = "at 5ms a:rdma_en2 slow-verb create_qp=2s; at 9ms a:rdma_en2 hang dereg_mr";
/// assert_eq!(text.parse::<FaultPlan>()?.to_string(), text);
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlowVerb {
    /// The verb
    pub verb: SlowableVerb,
    /// How much longer it takes
    pub time: Duration,
}

impl SlowableVerb {
    /// All of them, by name
    pub const ALL: [Self; 16] = [
        Self(Verb::AllocPd),
        Self(Verb::CloseDevice),
        Self(Verb::CreateCq),
        Self(Verb::CreateQp),
        Self(Verb::DeallocPd),
        Self(Verb::DeregMr),
        Self(Verb::DestroyCq),
        Self(Verb::DestroyQp),
        Self(Verb::ModifyQp),
        Self(Verb::OpenDevice),
        Self(Verb::PollCq),
        Self(Verb::PostRecv),
        Self(Verb::PostSend),
        Self(Verb::QueryGid),
        Self(Verb::QueryPort),
        Self(Verb::RegMr),
    ];

    /// `verb`, if faults can slow it down
    pub fn new(verb: Verb) -> Option<Self> {
        Self::ALL.into_iter().find(|slowable| slowable.0 == verb)
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slowable| slowable.to_string() == name)
    }

    /// The names of all of them, for messages
    pub(super) fn names() -> String {
        Self::ALL.map(|verb| verb.to_string()).join(", ")
    }

    /// The verb
    pub const fn verb(self) -> Verb {
        self.0
    }
}

impl SlowVerb {
    /// The verb takes as long as usual
    pub(super) fn none(verb: SlowableVerb) -> Self {
        Self { verb, time: Duration::ZERO }
    }
}

impl fmt::Display for SlowableVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
