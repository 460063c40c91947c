//! How the library is linked.

fn main() -> std::io::Result<()> {
    preload::build_script::link()
}
