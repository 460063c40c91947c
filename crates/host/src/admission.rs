//! Whether a command may run, and as which file: the policy, the caller and the request together.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::command::{CommandRequest, StartError};
use super::environment::SessionEnvironment;
use super::identity::CallerKind;
use super::policy::{HostPolicy, PolicyDecision, RequestedCommand, Screening, is_harmless};
use super::program::DEFAULT_SEARCH;
use super::start::Executable;

/// The present policy, or the error of a policy file that cannot be used.
pub type CurrentPolicy<'a> = Result<&'a HostPolicy, &'a str>;

/// Decides as far as possible without a look at any file, so that a caller that may run nothing cannot make the service open
/// its files.
///
/// # Errors
///
/// [`StartError::Refused`] if no file could make it an allowed command; the errors of an invalid request.
pub fn screen(
    policy: CurrentPolicy<'_>,
    application: &CallerKind,
    request: &CommandRequest,
) -> Result<(), StartError> {
    let policy = match policy {
        Ok(policy) => policy,
        // An unreadable policy allows nothing, except to callers that could run the command anyway.
        Err(_) if *application == CallerKind::Host => return request.check(),
        Err(why) => return Err(refused(request, application, why.to_owned())),
    };
    let name = request.arguments.first().map(Vec::as_slice).unwrap_or_default();
    let arguments = request.arguments.get(1..).unwrap_or_default();
    match policy.screen(application, name, arguments) {
        Screening::Refused(decision) => Err(refused(request, application, reason(decision))),
        Screening::Unlimited | Screening::Undecided => request.check(),
    }
}

/// Decides about a request, and which file is executed for it. It blocks as long as the file systems of the path do.
///
/// # Errors
///
/// [`StartError::Refused`]; for an application without limits also that there is no such program.
pub fn admit(
    policy: CurrentPolicy<'_>,
    application: &CallerKind,
    request: &CommandRequest,
    session: &SessionEnvironment,
) -> Result<Executable, StartError> {
    screen(policy, application, request)?;
    let empty = HostPolicy::default();
    let policy = policy.unwrap_or(&empty);
    let name = request.arguments.first().map(Vec::as_slice).unwrap_or_default();
    let arguments = request.arguments.get(1..).unwrap_or_default();
    let limited = policy.screen(application, name, arguments) != Screening::Unlimited;
    let program = match request.find(session) {
        Ok(program) => program,
        // A caller that may run some programs only must not learn which others exist.
        Err(error) if limited => return Err(refused(request, application, error.to_string())),
        Err(error) => return Err(error),
    };
    let search = session.get("PATH").unwrap_or(DEFAULT_SEARCH.as_bytes());
    let wanted =
        RequestedCommand { program: &program, arguments, search: OsStr::from_bytes(search) };
    let judgement = policy.decide(application, &wanted);
    let decision = judgement.decision;
    if !decision.allows() {
        return Err(refused(request, application, reason(decision)));
    }
    if decision.is_by_name() {
        let other = request.variables.iter().find(|(name, value)| !is_harmless(name, value));
        if let Some((name, _)) = other {
            let why = format!("{}, and not with the variable {name}", reason(decision));
            return Err(refused(request, application, why));
        }
    }
    Ok(match (decision, judgement.instead) {
        (_, Some(named)) => Executable::exactly(named),
        (PolicyDecision::Unlimited, None) => Executable::by_path(&program),
        (_, None) => Executable::exactly(program),
    })
}

/// Refuses a request; the reason is for the log.
#[must_use]
pub fn refused(request: &CommandRequest, application: &CallerKind, why: String) -> StartError {
    let application = application.policy_name();
    StartError::Refused { command: request.name(), application, why }
}

fn reason(decision: PolicyDecision) -> String {
    match decision {
        PolicyDecision::Denied { line } => format!("line {line} of the policy forbids it"),
        PolicyDecision::NotListed => "no line of the policy allows it".to_owned(),
        PolicyDecision::Allowed { line } | PolicyDecision::AllowedWithAll { line } => {
            format!("line {line} of the policy allows it")
        }
        PolicyDecision::Unlimited | PolicyDecision::NotDenied => {
            "no line of the policy forbids it".to_owned()
        }
    }
}
