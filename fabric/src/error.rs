//! Why something could not be made, and why a request could not be posted.

use std::io;

/// Why a device, an object or a change of state was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A library or one of its functions is missing.
    #[error("fabric: {library} cannot be used: {problem}")]
    Library {
        /// File name.
        library: String,
        /// What the loader said.
        problem: String,
    },
    /// The device refused an operation.
    #[error("fabric: {device}: cannot {operation}: {source}")]
    Os {
        /// Device.
        device: String,
        /// What was tried, with its subject.
        operation: String,
        /// Why not.
        source: io::Error,
    },
    /// The device does not have what was asked for.
    #[error("fabric: {device} has no {what}")]
    Unsupported {
        /// Device.
        device: String,
        /// What.
        what: &'static str,
    },
    /// An argument outside what the device can do.
    #[error("fabric: {device}: {operation}: {problem}")]
    Argument {
        /// Device.
        device: String,
        /// What was tried.
        operation: &'static str,
        /// What is wrong, with what was seen and the limit.
        problem: String,
    },
    /// A change of a queue pair's state that is not allowed, or an attribute of it that was
    /// refused.
    #[error("fabric: {device}: queue pair {qpn:#x} from {from:?} to {to:?}: {problem}")]
    Transition {
        /// Device.
        device: String,
        /// Queue pair.
        qpn: u32,
        /// State it was in.
        from: crate::QpState,
        /// State wanted.
        to: crate::QpState,
        /// The attribute, or the rule.
        problem: String,
    },
}

impl Error {
    pub(crate) fn os(device: &str, operation: impl Into<String>, source: io::Error) -> Self {
        Self::Os { device: device.to_owned(), operation: operation.into(), source }
    }

    pub(crate) fn argument(
        device: &str,
        operation: &'static str,
        problem: impl Into<String>,
    ) -> Self {
        Self::Argument { device: device.to_owned(), operation, problem: problem.into() }
    }

    pub(crate) fn unsupported(device: &str, what: &'static str) -> Self {
        Self::Unsupported { device: device.to_owned(), what }
    }
}

/// Why a request was not taken. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue has no room: poll the completion queue, then try again.
    #[error("the queue is full")]
    Full,
    /// The queue pair's state does not allow it.
    #[error("the queue pair is in state {0:?}")]
    State(crate::QpState),
    /// The request itself is wrong.
    #[error("bad request: {0}")]
    Invalid(&'static str),
    /// The system said so (errno).
    #[error("the device refused it: {}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}
