//! Names of the kernel's functions, asked of the kernel one by one.
//!
//! `/proc/kallsyms` has them too, but the kernel writes all two hundred thousand lines of it for whoever needs three names.

use std::io;

use super::assembler::{Assembler, Helper, Register};
use super::{BpfProgram, Map, MapKind, ProgramKind};

use Register::{R0, R1, R2, R3, R4, R5};

/// What the kernel replaces by the name of the function that holds an address.
const FORMAT: &[u8; 4] = b"%ps\0";
/// The longest name with its module, in bytes.
const LONGEST: u32 = 512;
/// The address, and behind it its name.
const ROOM: u32 = 8 + LONGEST;

/// A program in the kernel that names addresses.
#[derive(Debug)]
pub struct KernelNames {
    program: BpfProgram,
    room: Map,
    _format: Map,
}

impl KernelNames {
    /// Puts the program into the kernel.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: without the right to it, and on kernels before 5.14.
    pub fn load() -> io::Result<KernelNames> {
        let first = 0_u32.to_ne_bytes();
        let format = Map::new(MapKind::Constants, "unjank_format", 4, 4, 1)?;
        format.set(&first, FORMAT)?;
        format.freeze()?;
        let room = Map::new(MapKind::Array, "unjank_named", 4, ROOM, 1)?;
        let mut program = Assembler::default();
        program.set_array(R1, (&room).into()).add(R1, 8);
        program.set(R2, LONGEST.cast_signed());
        program.set_array(R3, (&format).into());
        program.set_array(R4, (&room).into());
        program.set(R5, 8).call(Helper::Print);
        program.set(R0, 0).leave();
        let instructions = program.finish().map_err(io::Error::other)?;
        let program = BpfProgram::load(ProgramKind::OnDemand, "unjank_names", &instructions);
        Ok(KernelNames {
            program: program.map_err(|refused| refused.error)?,
            room,
            _format: format,
        })
    }

    /// Returns the name of the function that holds an address; none of an address outside of functions.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn name(&self, address: u64) -> io::Result<Option<String>> {
        let first = 0_u32.to_ne_bytes();
        let mut room = address.to_ne_bytes().to_vec();
        room.resize(usize::try_from(ROOM).unwrap_or(0), 0);
        self.room.set(&first, &room)?;
        self.program.run()?;
        let room = self.room.get(&first)?.unwrap_or_default();
        let text = room.get(8..).unwrap_or_default().split(|byte| *byte == 0).next();
        // A function of a module is followed by it: `name [module]`.
        let name = text.unwrap_or_default().split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_name = !name.is_empty() && !name.starts_with(b"0x");
        Ok(is_name.then(|| String::from_utf8_lossy(name).into_owned()))
    }
}
