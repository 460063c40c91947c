//! Host commands: messages of any bytes, as anybody on the bus may send them to a client.

/// Bytes from the socket, as one message after another.
pub fn message(data: &[u8]) {
    let _ = host::client::read_anything(data);
}
