//! Values of the fields of a model as text

use std::time::Duration;

use crate::fault::TIME;
use crate::rules::{
    EarlyReceives, FrameMatch, MultiSge, QueueGrant, QueueReadBack, QueueUnit, RingOverflow, SendCompletion,
    SourceGid, SpoiledRtr, UcWrite, Unresolved,
};

/// A value that a profile file holds
pub(super) trait Value: Sized {
    /// What a file may write, for the message about another text
    fn expected() -> String;

    fn parse(text: &str) -> Option<Self>;

    fn write(&self) -> String;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn expected() -> String {
                format!("a whole number of at most {}", <$type>::MAX)
            }

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

numbers!(u32, u64, usize);

impl Value for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    fn expected() -> String {
        "a time of at most a day, such as 1380s".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        let time = (TIME.parse)(text).ok()?;
        (!time.is_zero() && time <= Self::from_hours(24)).then_some(time)
    }

    fn write(&self) -> String {
        std::fmt::from_fn(|f| (TIME.write)(self, f)).to_string()
    }
}

/// A limit that may be missing: `never` is none
impl<T: Value> Value for Option<T> {
    fn expected() -> String {
        format!("{}, or never", T::expected())
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "never" { Some(None) } else { T::parse(text).map(Some) }
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(|| "never".to_owned(), Value::write)
    }
}

macro_rules! words {
    ($($type:ident { $($variant:ident = $word:literal),+ })+) => {$(
        impl Value for $type {
            fn expected() -> String {
                [$($word),+].join(" or ")
            }

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn write(&self) -> String {
                match self {
                    $(Self::$variant => $word,)+
                }
                .to_owned()
            }
        }
    )+};
}

words! {
    EarlyReceives { FromInit = "from-init", FromReadyToReceive = "from-rtr", FromReadyToSend = "from-rts" }
    FrameMatch { Exact = "exact", Fits = "fits" }
    MultiSge { Refused = "refused", Split = "split" }
    QueueReadBack { Accepted = "accepted", Asked = "asked", Limit = "limit" }
    QueueUnit { Frames = "frames", Requests = "requests" }
    RingOverflow { Corrupts = "corrupts", Refused = "refused" }
    SendCompletion { Departure = "departure", HandOff = "hand-off" }
    SourceGid { Any = "any", Ipv4 = "ipv4" }
    SpoiledRtr { GidTableEmpty = "gid-table-empty", NoUsableGid = "no-usable-gid" }
    UcWrite { AsSend = "as-send", Refused = "refused" }
    Unresolved { NotPermitted = "not-permitted", TimedOut = "timed-out" }
}

impl Value for QueueGrant {
    fn expected() -> String {
        "exact, at-least N or fixed N".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "exact" {
            return Some(Self::Exact);
        }
        let (word, number) = text.split_once(' ')?;
        let number = number.parse().ok()?;
        match word {
            "at-least" => Some(Self::AtLeast(number)),
            "fixed" if number > 0 => Some(Self::Fixed(number)),
            _ => None,
        }
    }

    fn write(&self) -> String {
        match self {
            Self::AtLeast(frames) => format!("at-least {frames}"),
            Self::Exact => "exact".to_owned(),
            Self::Fixed(frames) => format!("fixed {frames}"),
        }
    }
}
