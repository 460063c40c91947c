//! A connection to a bus and a name on it.

use zbus::fdo::{RequestNameFlags, RequestNameReply};

use super::{ServerError, Takeover};
use crate::bounded;
use crate::raw::{self, Link};

/// Connects to the bus at `address`, or to the session bus that the environment names.
pub(super) async fn connect(address: Option<&str>) -> Result<Link, ServerError> {
    let no_bus = |error| ServerError::NoBus(raw::to_io(error));
    let (connection, unread) = bounded::connect(address).await.map_err(no_bus)?;
    Ok(Link::over(connection).counting(unread))
}

/// Takes `name`, without queueing for it; others may take it over if they say so.
pub(super) async fn own(link: &Link, name: &str, takeover: Takeover) -> Result<(), ServerError> {
    let mut flags = RequestNameFlags::DO_NOT_QUEUE | RequestNameFlags::ALLOW_REPLACEMENT;
    if takeover == Takeover::IfAllowed {
        flags |= RequestNameFlags::REPLACE_EXISTING;
    }
    let no_name = |error| ServerError::NoName { name: name.to_owned(), source: raw::to_io(error) };
    let reply = link
        .connection()
        .call_method(
            Some("org.freedesktop.DBus"),
            "/org/freedesktop/DBus",
            Some("org.freedesktop.DBus"),
            "RequestName",
            &(name, flags),
        )
        .await
        .map_err(no_name)?;
    match reply.body().deserialize::<RequestNameReply>().map_err(no_name)? {
        RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner => {
            link.bound_unread();
            Ok(())
        }
        RequestNameReply::Exists | RequestNameReply::InQueue => {
            Err(ServerError::NameTaken { name: name.to_owned() })
        }
    }
}
