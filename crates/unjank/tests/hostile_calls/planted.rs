//! A service with faults, which the attack has to find.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::Bus;
use super::host_service::wire::Bytes;
use super::watch::{LONGEST, pause};
use super::wire::{CALL, ERROR, Target, Wire};

pub const NAME: &str = "org.example.Faulty";
const VARIABLE: &str = "FAULTY_SERVICE";
const XML: &str = r#"<node><interface name="org.example.Faulty">
  <method name="Ask"><arg type="s" direction="in"/><arg type="ah" direction="in"/></method>
</interface></node>"#;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// A long argument keeps it from answering others.
    Slow,
    /// It keeps what it is given.
    KeepsMemory,
    /// It keeps descriptors that it is given.
    KeepsDescriptors,
    /// It does not answer arguments that it does not like.
    Silent,
    /// It ends.
    Ends,
}

const ALL: [Fault; 6] = [
    Fault::None,
    Fault::Slow,
    Fault::KeepsMemory,
    Fault::KeepsDescriptors,
    Fault::Silent,
    Fault::Ends,
];

/// Starts the service as a process of its own: this test again, with a variable.
pub fn start(bus: &Bus, fault: Fault) -> super::fixture::Service {
    let mut command = bus.command(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile_calls::planted::the_service_with_a_fault", "--nocapture"]);
    command.env(VARIABLE, format!("{fault:?}")).stdout(std::process::Stdio::null());
    let service = super::fixture::Service::from(command.spawn().unwrap());
    bus.client().wait_for_owner(NAME).unwrap();
    service
}

#[test]
fn the_service_with_a_fault() {
    let Ok(name) = std::env::var(VARIABLE) else { return };
    let fault = ALL.into_iter().find(|fault| format!("{fault:?}") == name).unwrap();
    let address = std::env::var("DBUS_SESSION_BUS_ADDRESS").unwrap();
    // It ends with the bus.
    let _ = serve(&address, fault);
}

fn serve(address: &str, fault: Fault) -> std::io::Result<()> {
    let mut wire = Wire::connect(address, Duration::from_secs(600))?;
    let mut body = Bytes::default();
    body.text(NAME);
    body.number(0);
    assert_ne!(wire.call(&Target::of_bus("RequestName"), "su", &body.0)?.kind, ERROR);
    // Twice is enough to be noticed.
    let mut slow = 0..2;
    let mut memory = Vec::new();
    let mut descriptors = Vec::new();
    loop {
        let mut call = wire.receive()?;
        if call.kind != CALL {
            continue;
        }
        let length = call.text().len();
        match fault {
            Fault::Slow if length > 1000 && slow.next().is_some() => pause(2 * LONGEST),
            Fault::KeepsMemory if memory.len() < 1500 => memory.push(vec![1_u8; 256 << 10]),
            Fault::KeepsDescriptors => descriptors.append(&mut call.descriptors),
            Fault::Silent if call.text().contains('\u{1b}') => continue,
            Fault::Ends if length > 1000 => return Ok(()),
            _ => {}
        }
        let text = if call.member == "Introspect" { XML } else { "" };
        wire.answer(&call, text)?;
    }
}

/// What the service is asked by somebody else.
pub fn question(_: u32) -> Vec<u8> {
    let mut body = Bytes::default();
    body.text("short");
    body.array(4, |_| {});
    body.0
}

/// Descriptors of a pipe and of nothing in particular.
pub fn descriptors() -> Vec<Arc<std::os::fd::OwnedFd>> {
    let (read, write) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    [read.into(), write.into(), null.into()].map(Arc::new).into()
}
