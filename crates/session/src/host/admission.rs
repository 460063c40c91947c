//! Whether a command may run, and as which file: the policy, the caller and the request together.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::command::{Request, StartError};
use super::environment::Environment;
use super::identity::Application;
use super::policy::{Decision, Policy, Screening, Wanted, is_harmless};
use super::program::DEFAULT_SEARCH;
use super::start::Executable;

/// The policy as it is now, or why there is a file that holds none.
pub type Known<'a> = Result<&'a Policy, &'a str>;

/// Says what is known of a request before any file is looked at, so that a caller who may run nothing makes nobody look
/// at files of his.
///
/// # Errors
///
/// [`StartError::Refused`] if no file could make it a command that may run; what makes no sense for anybody.
pub fn screen(
    policy: Known<'_>,
    application: &Application,
    request: &Request,
) -> Result<(), StartError> {
    let policy = match policy {
        Ok(policy) => policy,
        // What nobody can read allows nothing, except to those who could run it anyway.
        Err(_) if *application == Application::Host => return request.check(),
        Err(why) => return Err(refused(request, application, why.to_owned())),
    };
    let name = request.arguments.first().map(Vec::as_slice).unwrap_or_default();
    let arguments = request.arguments.get(1..).unwrap_or_default();
    match policy.screen(application, name, arguments) {
        Screening::Refused(decision) => Err(refused(request, application, reason(decision))),
        Screening::Unlimited | Screening::Undecided => request.check(),
    }
}

/// Decides about a request, and which file is executed for it. This may take as long as the file systems on the way do.
///
/// # Errors
///
/// [`StartError::Refused`]; for an application that nothing limits also that there is no such program.
pub fn admit(
    policy: Known<'_>,
    application: &Application,
    request: &Request,
    session: &Environment,
) -> Result<Executable, StartError> {
    screen(policy, application, request)?;
    let empty = Policy::default();
    let policy = policy.unwrap_or(&empty);
    let name = request.arguments.first().map(Vec::as_slice).unwrap_or_default();
    let arguments = request.arguments.get(1..).unwrap_or_default();
    let limited = policy.screen(application, name, arguments) != Screening::Unlimited;
    let program = match request.find(session) {
        Ok(program) => program,
        // Who may run some programs only is not told which others there are.
        Err(error) if limited => return Err(refused(request, application, error.to_string())),
        Err(error) => return Err(error),
    };
    let search = session.get("PATH").unwrap_or(DEFAULT_SEARCH.as_bytes());
    let wanted = Wanted { program: &program, arguments, search: OsStr::from_bytes(search) };
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
        (Decision::Unlimited, None) => Executable::by_path(&program),
        (_, None) => Executable::exactly(program),
    })
}

/// Refuses a request; the reason is for the log.
#[must_use]
pub fn refused(request: &Request, application: &Application, why: String) -> StartError {
    let application = application.policy_name();
    StartError::Refused { command: request.name(), application, why }
}

fn reason(decision: Decision) -> String {
    match decision {
        Decision::Denied { line } => format!("line {line} of the policy forbids it"),
        Decision::NotListed => "no line of the policy allows it".to_owned(),
        Decision::Allowed { line } | Decision::AllowedWithAll { line } => {
            format!("line {line} of the policy allows it")
        }
        Decision::Unlimited | Decision::NotDenied => "no line of the policy forbids it".to_owned(),
    }
}
