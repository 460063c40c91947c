//! Small things in the memory of a traced process: paths, addresses, arrays.

/// The longest path that the kernel takes.
const PATH: usize = 4096;

/// Reads `len` bytes; fewer where the memory ends.
pub(super) fn bytes(process: u32, address: u64, len: usize) -> Option<Vec<u8>> {
    if address == 0 || len == 0 {
        return None;
    }
    let mut bytes = vec![0; len];
    let got = sys::remote::read(process, address, &mut bytes).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

/// Reads a path up to its end; none where there is no end.
pub(super) fn path(process: u32, address: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    // Most paths are short; the rest of a page costs no second look.
    while path.len() < PATH {
        let at = address.checked_add(path.len() as u64)?;
        let page = usize::try_from(4096 - at % 4096).ok()?;
        let part = bytes(process, at, page.min(256).min(PATH - path.len()))?;
        if part.is_empty() {
            return None;
        }
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&part[..end]);
            return Some(path);
        }
        path.extend_from_slice(&part);
    }
    None
}

/// Reads a word of 32 bits.
pub(super) fn word(process: u32, address: u64) -> Option<u32> {
    let bytes = bytes(process, address, 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads `N` words of 64 bits.
pub(super) fn longs<const N: usize>(process: u32, address: u64) -> Option<[u64; N]> {
    let bytes = bytes(process, address, 8 * N)?;
    let mut longs = [0; N];
    for (long, bytes) in longs.iter_mut().zip(bytes.chunks_exact(8)) {
        *long = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    (bytes.len() == 8 * N).then_some(longs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_to_its_end_and_not_beyond() {
        let text = b"/some/path\0behind";
        assert_eq!(path(std::process::id(), text.as_ptr() as u64).unwrap(), b"/some/path");
        let long = [b'x'; 3 * PATH];
        assert_eq!(path(std::process::id(), long.as_ptr() as u64), None);
        assert_eq!(path(std::process::id(), 0), None);
    }
}
