//! One request over HTTP, and what its answer means.

use std::io::Read;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use prost::{DecodeError, Message};

/// The longest answer that is read.
const MAX_ANSWER: u64 = 64 << 10;
/// How long a connection, and how long an answer, may take.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);

/// Why a place cannot be sent to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The program has no TLS.
    #[error("this program sends to http:// only")]
    NoTls,
    /// It is no address.
    #[error("an address is http://HOST:PORT, such as http://127.0.0.1:4318")]
    NotHttp,
}

/// What became of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SendOutcome {
    /// The receiver has taken it, apart from so many records, which it refuses for good, with its reason.
    Accepted(i64, String),
    /// It may be taken later; not before this time, where the receiver says so.
    Later(String, Option<Duration>),
    /// It is too large.
    TooLarge,
    /// The receiver does not take it.
    Refused(String),
}

/// A request of OTLP.
pub trait OtlpRequest: Message {
    /// What it tells, in a word.
    const WHAT: &str;

    /// Returns how many of its records, or points, an answer refuses for good, and why.
    ///
    /// # Errors
    ///
    /// The bytes are no such answer.
    fn rejected(answer: &[u8]) -> Result<(i64, String), DecodeError>;
}

impl OtlpRequest for ExportLogsServiceRequest {
    const WHAT: &str = "hangs";

    fn rejected(answer: &[u8]) -> Result<(i64, String), DecodeError> {
        let part = ExportLogsServiceResponse::decode(answer)?.partial_success.unwrap_or_default();
        Ok((part.rejected_log_records, part.error_message))
    }
}

impl OtlpRequest for ExportMetricsServiceRequest {
    const WHAT: &str = "metrics";

    fn rejected(answer: &[u8]) -> Result<(i64, String), DecodeError> {
        let part =
            ExportMetricsServiceResponse::decode(answer)?.partial_success.unwrap_or_default();
        Ok((part.rejected_data_points, part.error_message))
    }
}

/// Sends requests to one address.
#[derive(Debug)]
pub struct OtlpClient {
    agent: ureq::Agent,
    url: String,
}

/// Returns the address of logs at a receiver.
///
/// # Errors
///
/// [`UrlError`].
pub fn logs_url(base: &str) -> Result<String, UrlError> {
    if base.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Err(UrlError::NoTls);
    }
    let uri: ureq::http::Uri = base.parse().map_err(|_| UrlError::NotHttp)?;
    let authority = uri.authority().ok_or(UrlError::NotHttp)?.as_str();
    let has_port = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => true,
    };
    // A password would stand in what is printed, and a fragment would take the path with it.
    if uri.scheme_str() != Some("http")
        || uri.host().is_none_or(str::is_empty)
        || !has_port
        || authority.contains('@')
        || base.contains(['?', '#'])
    {
        return Err(UrlError::NotHttp);
    }
    // One place has one spelling, so that it is known what was sent there.
    let base = format!("http://{}{}", authority.to_ascii_lowercase(), uri.path());
    let base = base.trim_end_matches('/');
    Ok(if base.ends_with("/v1/logs") { base.to_owned() } else { format!("{base}/v1/logs") })
}

/// Returns the address of metrics at the receiver whose address of logs [`logs_url`] returned.
#[must_use]
pub fn metrics_url(logs: &str) -> String {
    format!("{}/v1/metrics", logs.strip_suffix("/v1/logs").unwrap_or(logs))
}

impl OtlpClient {
    /// Creates one for the address that [`logs_url`] or [`metrics_url`] returns.
    #[must_use]
    pub fn new(url: &str) -> OtlpClient {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // Records go where the person says, and nowhere else.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .user_agent(concat!("unjank-export/", env!("CARGO_PKG_VERSION")))
            .build();
        OtlpClient { agent: config.new_agent(), url: url.to_owned() }
    }

    /// Returns the address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request once.
    #[must_use]
    pub fn send<Request: OtlpRequest>(&self, request: &Request) -> SendOutcome {
        let post = self.agent.post(&self.url).header("content-type", "application/x-protobuf");
        let mut answer = match post.send(&request.encode_to_vec()[..]) {
            Ok(answer) => answer,
            Err(error) => return SendOutcome::Later(report::error::chain(&error), None),
        };
        let status = answer.status().as_u16();
        let wait = answer.headers().get("retry-after").and_then(|wait| wait.to_str().ok());
        let wait = wait.and_then(|wait| wait.parse().ok()).map(Duration::from_secs);
        let mut bytes = Vec::new();
        let read = answer.body_mut().as_reader().take(MAX_ANSWER).read_to_end(&mut bytes);
        match status {
            200..=299 => match read.map(|_| Request::rejected(&bytes)) {
                Ok(Ok((count, reason))) => SendOutcome::Accepted(count, reason),
                Ok(Err(_)) => SendOutcome::Refused("the answer is not one of OTLP".to_owned()),
                Err(error) => SendOutcome::Later(report::error::chain(&error), None),
            },
            413 => SendOutcome::TooLarge,
            408 | 429 | 502 | 503 | 504 => SendOutcome::Later(format!("it answers {status}"), wait),
            _ => SendOutcome::Refused(format!("it answers {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_with_a_host() {
        assert_eq!(logs_url("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/logs");
        assert_eq!(logs_url("http://a:1/v1/logs").unwrap(), "http://a:1/v1/logs");
        assert_eq!(logs_url("http://a/otlp/").unwrap(), "http://a/otlp/v1/logs");
        assert_eq!(metrics_url(&logs_url("http://a/otlp/").unwrap()), "http://a/otlp/v1/metrics");
        assert_eq!(metrics_url("http://a:1/v1/logs"), "http://a:1/v1/metrics");
        assert_eq!(logs_url("HTTPS://a"), Err(UrlError::NoTls));
        assert_eq!(logs_url("HTTP://Desk:1").unwrap(), "http://desk:1/v1/logs");
        assert_eq!(logs_url("http://[::1]").unwrap(), "http://[::1]/v1/logs");
        for wrong in ["", "127.0.0.1:4318", "ftp://a", "http://", "http://a/?x=1", "/v1/logs"] {
            assert_eq!(logs_url(wrong), Err(UrlError::NotHttp), "{wrong}");
        }
        for wrong in ["a:1#x", "a/#", "a:99999", "a:x", "a:", "a:0", "ann:secret@a", "[::1]:0"] {
            let wrong = &format!("http://{wrong}");
            assert_eq!(logs_url(wrong), Err(UrlError::NotHttp), "{wrong}");
        }
    }
}
