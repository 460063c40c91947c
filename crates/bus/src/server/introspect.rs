//! What `Introspect` says of each object.

use std::fmt::Write;

/// The standard interfaces.
pub(crate) const STANDARD: &str = include_str!("../../xml/standard.xml");
/// The interface of a database.
pub(crate) const WRITER: &str = include_str!("../../xml/ca.desrt.dconf.Writer.xml");
/// The interface that exists while blame is on.
pub(crate) const SERVICE_INFO: &str = include_str!("../../xml/ca.desrt.dconf.ServiceInfo.xml");

/// The interface of host commands.
pub(crate) const DEVELOPMENT: &str =
    include_str!("../../xml/org.freedesktop.Flatpak.Development.xml");
/// The interface for `flatpak run`.
pub(crate) const SESSION_HELPER: &str =
    include_str!("../../xml/org.freedesktop.Flatpak.SessionHelper.xml");
/// What host commands have of ours.
pub(crate) const HOST1: &str = include_str!("../../xml/org.unjank.Host1.xml");
/// Recent documents.
pub(crate) const RECENT1: &str = include_str!("../../xml/org.unjank.Recent1.xml");

/// Describes an object with these interfaces and these children.
pub(crate) fn node<'a>(interfaces: &[&str], children: impl IntoIterator<Item = &'a str>) -> String {
    let mut xml = String::from(
        "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n\
         \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n",
    );
    for interface in interfaces {
        xml.push_str(interface);
    }
    for child in children {
        // Children are D-Bus path elements, which hold nothing that XML would have to escape.
        let _ = writeln!(xml, "  <node name=\"{child}\"/>");
    }
    xml.push_str("</node>\n");
    xml
}
