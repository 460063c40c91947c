//! The other end of a socket, and calls of D-Bus that are sent: when user space looks, the socket may be closed and its program gone.

use super::{Label, ProgramPlan, frame, registers};
use crate::fields::SocketFields;
use crate::layout::{record, scratch, shared, thread};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R0, R1, R2, R3, R4, R6, R7, R9, R10};

/// The part of a mode that says what a file is, and the value of a socket.
const FILE_TYPE: i32 = 0o170_000;
/// See `FILE_TYPE`.
const SOCKET: i32 = 0o140_000;
/// `AF_UNIX`, `AF_INET` and `AF_INET6`.
const FAMILIES: [i32; 3] = [1, 2, 10];
/// States in which a connection has no other end: `TCP_SYN_SENT` and `TCP_CLOSE`.
const UNCONNECTED: [i32; 2] = [2, 7];
/// The shortest header of a message of D-Bus.
const SHORTEST: i32 = 16;
/// Does not wake the reader of the ring.
const QUIETLY: i32 = 1;

impl ProgramPlan {
    /// Adds the other end of the socket whose open file is in the scratch to the record in `R7`; of other files nothing.
    pub(super) fn write_socket(&self, p: &mut Assembler, fields: &SocketFields) {
        let (done, unix, internet, internet_6) = (p.label(), p.label(), p.label(), p.label());
        p.load(Size::Word, R1, R7, record::MODE).calculate(Operation::And, R1, FILE_TYPE);
        p.jump_if(R1, JumpCondition::Differ, SOCKET, done);
        self.follow(p, scratch::OPEN_FILE, fields.file_private, (scratch::FILE, 8), done);
        self.follow(p, scratch::FILE, fields.socket_type, (record::SOCKET_TYPE, 2), done);
        self.follow(p, scratch::FILE, fields.socket_inner, (scratch::SOCKET, 8), done);
        self.follow(p, scratch::SOCKET, fields.peer_process, (scratch::FILE, 8), done);
        let unknown = p.label();
        p.load(Size::Long, R1, R7, scratch::FILE).jump_if(R1, JumpCondition::Equal, 0, unknown);
        self.follow(p, scratch::FILE, fields.process_number, (record::PEER, 4), done);
        p.place(unknown);
        self.follow(p, scratch::SOCKET, fields.family, (record::ADDRESS, 2), done);
        p.load(Size::Half, R1, R7, record::ADDRESS);
        for (family, label) in FAMILIES.into_iter().zip([unix, internet, internet_6]) {
            p.jump_if(R1, JumpCondition::Equal, family, label);
        }
        p.jump(done);

        p.place(internet);
        self.write_port(p, fields, done);
        self.follow(p, scratch::SOCKET, fields.address, (record::ADDRESS + 4, 4), done);
        p.store(Size::Word, R7, record::ADDRESS_LENGTH, 16).jump(done);

        p.place(internet_6);
        if let Some(address) = fields.address_6 {
            self.write_port(p, fields, done);
            p.store(Size::Word, R7, record::ADDRESS + 4, 0);
            self.follow(p, scratch::SOCKET, address, (record::ADDRESS + 8, 16), done);
            p.store(Size::Word, R7, record::ADDRESS_LENGTH, 28);
        }
        p.jump(done);

        p.place(unix);
        self.follow(p, scratch::SOCKET, fields.unix_peer, (scratch::FILE, 8), done);
        p.load(Size::Long, R1, R7, scratch::FILE).jump_if(R1, JumpCondition::Equal, 0, done);
        // It has another end; mostly only one of the two has an address.
        p.store(Size::Word, R7, record::ADDRESS_LENGTH, 2);
        self.follow(p, scratch::FILE, fields.unix_address, (scratch::OTHER_END, 8), done);
        p.load(Size::Long, R1, R7, scratch::OTHER_END).jump_if(R1, JumpCondition::Equal, 0, done);
        self.follow(p, scratch::OTHER_END, fields.unix_length, (scratch::CONNECTION, 4), done);
        p.load(Size::Word, R2, R7, scratch::CONNECTION);
        p.jump_if(R2, JumpCondition::Above, record::ADDRESS_LIMIT, done);
        p.jump_if(R2, JumpCondition::AtMost, 2, done).store(
            Size::Long,
            R10,
            frame::SMALL_VALUE,
            R2,
        );
        p.load(Size::Long, R3, R7, scratch::OTHER_END).add(R3, i32::from(fields.unix_name));
        p.set(R1, R7).add(R1, i32::from(record::ADDRESS)).call(Helper::ReadKernel);
        p.jump_if(R0, JumpCondition::Differ, 0, done);
        // The address goes with the other end. That is still there if the socket is still connected to it; else these
        // bytes may be of anything.
        let other = p.label();
        self.follow(p, scratch::SOCKET, fields.unix_peer, (scratch::OTHER_END, 8), other);
        p.load(Size::Long, R1, R7, scratch::OTHER_END).load(Size::Long, R2, R7, scratch::FILE);
        p.jump_if(R1, JumpCondition::Differ, R2, other);
        p.load(Size::Long, R2, R10, frame::SMALL_VALUE);
        p.store(Size::Word, R7, record::ADDRESS_LENGTH, R2).jump(done);
        p.place(other);
        self.write_no_address(p);
        p.place(done);
    }

    /// Zeroes the address of the other end: the record is sent with all of its bytes.
    pub(super) fn write_no_address(&self, p: &mut Assembler) {
        p.store(Size::Word, R7, record::ADDRESS_LENGTH, 0);
        for word in 0..(record::DATA - record::ADDRESS) / 8 {
            p.store(Size::Long, R7, record::ADDRESS + 8 * word, 0);
        }
    }

    /// Adds the port of the other end, or goes to `done` if there is none.
    fn write_port(&self, p: &mut Assembler, fields: &SocketFields, done: Label) {
        self.follow(p, scratch::SOCKET, fields.state, (scratch::CONNECTION, 1), done);
        p.load(Size::Byte, R1, R7, scratch::CONNECTION);
        for state in UNCONNECTED {
            p.jump_if(R1, JumpCondition::Equal, state, done);
        }
        self.follow(p, scratch::SOCKET, fields.port, (record::ADDRESS + 2, 2), done);
        p.load(Size::Half, R1, R7, record::ADDRESS + 2);
        p.jump_if(R1, JumpCondition::Equal, 0, done);
    }

    /// Copies a field of the structure whose address is at `from` in the scratch, to a place there, or goes to `done`.
    fn follow(
        &self,
        p: &mut Assembler,
        from: i16,
        field: i16,
        (to, bytes): (i16, i32),
        done: Label,
    ) {
        p.load(Size::Long, R3, R7, from).add(R3, i32::from(field));
        self.copy(p, to, bytes, done);
    }

    /// Reports the message that the thread in `R9` is about to send, if it is a call of D-Bus: the wait that follows is for its answer.
    ///
    /// Clobbers all registers but `R6`, `R8` and `R9`.
    pub(super) fn write_sent(&self, p: &mut Assembler) {
        let (done, sends, known, fits, is_call) =
            (p.label(), p.label(), p.label(), p.label(), p.label());
        let [sendmsg, sendto] = self.senders;
        p.jump_if(R7, JumpCondition::Equal, sendmsg, sends);
        p.jump_if(R7, JumpCondition::Differ, sendto, done).place(sends);
        self.find_scratch(p, done);
        p.load(Size::Long, R1, R6, 0).load(Size::Long, R3, R1, registers::ARGUMENTS[1]);
        p.load(Size::Long, R2, R1, registers::ARGUMENTS[2]);
        p.load(Size::Word, R4, R9, thread::NUMBER);
        p.jump_if(R4, JumpCondition::Differ, sendmsg, known);
        // `struct msghdr`: name, its length, the parts, how many. A part has an address and a length; the header is in the first.
        self.read_message(p, 32, done);
        p.load(Size::Long, R3, R7, record::MESSAGE + 16);
        self.read_message(p, 16, done);
        p.load(Size::Long, R3, R7, record::MESSAGE).load(Size::Long, R2, R7, record::MESSAGE + 8);
        p.place(known).jump_if(R2, JumpCondition::Below, SHORTEST, done);
        p.jump_if(R2, JumpCondition::AtMost, record::MESSAGE_LIMIT, fits);
        p.set(R2, record::MESSAGE_LIMIT).place(fits);
        p.store(Size::Long, R10, frame::SMALL_VALUE, R2);
        p.set(R1, R7).add(R1, i32::from(record::MESSAGE)).call(Helper::ReadUser);
        p.jump_if(R0, JumpCondition::Differ, 0, done);
        // The order of bytes, the type, and the version of the protocol.
        p.load(Size::Byte, R1, R7, record::MESSAGE);
        p.jump_if(R1, JumpCondition::Equal, i32::from(b'l'), is_call);
        p.jump_if(R1, JumpCondition::Differ, i32::from(b'B'), done).place(is_call);
        for at in [1, 3] {
            p.load(Size::Byte, R1, R7, record::MESSAGE + at);
            p.jump_if(R1, JumpCondition::Differ, 1, done);
        }
        p.store(Size::Word, R7, record::KIND, record::SENT);
        p.store(Size::Word, R7, record::FLAGS, 0);
        p.call(Helper::Clock).store(Size::Long, R7, record::START, R0);
        for (from, to) in [(thread::THREAD, record::THREAD), (thread::PROCESS, record::PROCESS)] {
            p.load(Size::Word, R1, R9, from).store(Size::Word, R7, to, R1);
        }
        p.load(Size::Long, R1, R6, 0).load(Size::Long, R1, R1, registers::ARGUMENTS[0]);
        p.store(Size::Word, R7, record::NUMBER, R1);
        p.load(Size::Long, R3, R10, frame::SMALL_VALUE).add(R3, i32::from(record::MESSAGE));
        p.set_map(R1, self.maps.ring).set(R2, R7).set(R4, QUIETLY).call(Helper::RingOutput);
        p.jump_if(R0, JumpCondition::Equal, 0, done);
        self.count(p, shared::LOST_MESSAGES);
        p.place(done).load(Size::Long, R7, R6, 8);
    }

    /// Copies `bytes` of the program from the address in `R3` into the room for a message, or goes to `done`.
    fn read_message(&self, p: &mut Assembler, bytes: i32, done: Label) {
        p.set(R1, R7).add(R1, i32::from(record::MESSAGE)).set(R2, bytes).call(Helper::ReadUser);
        p.jump_if(R0, JumpCondition::Differ, 0, done);
    }
}
