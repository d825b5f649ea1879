//! The two signals. A call that the kernel tells of (SIGSYS) is done where it stands, with the trap
//! flag set; behind it (SIGTRAP) calls are forbidden again.

use super::{ALLOW, BLOCK, SELECTOR, table};
use crate::streams::segment;
use libc::{
    REG_EFL, REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
    siginfo_t, ucontext_t,
};
use siftfs_client::escapes::Word;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const DISPATCH_ON: c_int = 1;
/// Of SIGSYS: a call that a thread's byte forbids.
const SYS_USER_DISPATCH: c_int = 2;
const TRAP_FLAG: i64 = 0x100;
const SA_RESTORER: u64 = 0x0400_0000;
/// `syscall` and `int 0x80`.
const CALL_LEN: i64 = 2;
/// Signals must come through, and be these handlers': bit n is signal n + 1.
const OURS: u64 = 1 << (libc::SIGSYS - 1) | 1 << (libc::SIGTRAP - 1);
const SET_LEN: i64 = 8;
/// clone3(2) with this has the child lose its handlers before a trap could come.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

thread_local! {
    /// Which one of the calls is under way whose answer is a descriptor; zero: none, else one more.
    static OPENS: Cell<usize> = const { Cell::new(0) };
}

/// As the kernel has it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// A handler returns by this library's own code: from anywhere else that were a call to be told.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    std::arch::naked_asm!("mov eax, 15", "syscall")
}

/// Has the two signals handled. False: that cannot be.
pub fn handle() -> bool {
    let handlers: [(c_int, unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void)); 2] =
        [(libc::SIGSYS, told), (libc::SIGTRAP, behind)];
    handlers.into_iter().all(|(signal, handler)| {
        let action = Action {
            handler: handler as usize,
            flags: libc::SA_SIGINFO as u64 | SA_RESTORER,
            restorer: restore as *const () as usize,
            mask: u64::MAX,
        };
        // SAFETY: the handlers are this library's, which is never unloaded.
        let set = unsafe {
            let none = null_mut::<Action>();
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, none, SET_LEN)
        };
        set == 0
    })
}

/// Has the kernel look at the thread's byte. False: it cannot.
pub fn tell(selector: *mut u8) -> bool {
    let Some(own) = segment((told as *const ()).addr()) else { return false };
    let through = OURS;
    // SAFETY: the byte is there as long as the thread; it allows everything as yet. The set of
    // signals is as long as that.
    unsafe {
        let none = null_mut::<u64>();
        let set = &raw const through;
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, set, none, SET_LEN);
        let (at, len) = (own.start, own.len());
        let on = (PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON);
        libc::syscall(libc::SYS_prctl, on.0, on.1, at, len, selector) == 0
    }
}

/// The registers that a handler changes.
struct Thread<'a>(&'a mut ucontext_t);

impl Thread<'_> {
    fn get(&self, register: c_int) -> i64 {
        self.0.uc_mcontext.gregs.get(register as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, register: c_int, value: i64) {
        if let Some(at) = self.0.uc_mcontext.gregs.get_mut(register as usize) {
            *at = value;
        }
    }

    fn argument(&self, at: usize) -> i64 {
        let all = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];
        all.get(at).map_or(0, |register| self.get(*register))
    }

    fn pointer(&self, at: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.argument(at).cast_unsigned() as usize)
    }

    /// The signals that the thread has blocked, as the kernel takes them back.
    fn mask(&mut self) -> *mut u64 {
        (&raw mut self.0.uc_sigmask).cast()
    }

    /// The instruction is to be done again; then comes a trap, or nothing.
    fn again(&mut self, trap: bool) {
        SELECTOR.set(ALLOW);
        self.set(REG_RIP, self.get(REG_RIP) - CALL_LEN);
        if trap {
            self.set(REG_EFL, self.get(REG_EFL) | TRAP_FLAG);
        }
    }

    /// It was done here, with this answer.
    fn answer(&mut self, answer: i64) {
        self.set(REG_RAX, answer);
        SELECTOR.set(BLOCK);
    }
}

/// SIGSYS.
unsafe extern "C" fn told(_signal: c_int, about: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler both.
    let (about, context) = unsafe { (&*about, &mut *context.cast::<ucontext_t>()) };
    if about.si_code != SYS_USER_DISPATCH {
        return;
    }
    SELECTOR.set(ALLOW);
    let mut thread = Thread(context);
    let number = thread.get(REG_RAX);
    table::add(Word::Told);
    OPENS.set(0);
    match number {
        libc::SYS_rt_sigprocmask => change_mask(&mut thread),
        libc::SYS_rt_sigaction => change_action(&mut thread),
        libc::SYS_rt_sigreturn => {
            // SAFETY: the frame of the handler that returns is there, as the kernel made it.
            let frame = unsafe {
                let at = thread.get(REG_RSP).cast_unsigned() as usize;
                &mut *std::ptr::with_exposed_provenance_mut::<ucontext_t>(at)
            };
            let mut returned = Thread(frame);
            returned.set(REG_EFL, returned.get(REG_EFL) | TRAP_FLAG);
            thread.again(false);
        }
        libc::SYS_clone3 => {
            let flags = read::<u64>(thread.pointer(0)).unwrap_or(0);
            thread.again(flags & CLONE_CLEAR_SIGHAND == 0);
        }
        _ => {
            if let Some((at, call)) = table::call(number) {
                let descriptors = call.descriptors.iter().map(|n| thread.argument(*n) as i32);
                table::count(at, descriptors);
                OPENS.set(if call.opens { at + 1 } else { 0 });
            }
            thread.again(true);
        }
    }
}

/// SIGTRAP.
unsafe extern "C" fn behind(_signal: c_int, about: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler both.
    let (about, context) = unsafe { (&*about, &mut *context.cast::<ucontext_t>()) };
    if about.si_code != libc::TRAP_TRACE {
        return;
    }
    SELECTOR.set(ALLOW);
    let mut thread = Thread(context);
    if let Some(at) = OPENS.replace(0).checked_sub(1) {
        table::count(at, std::iter::once(thread.get(REG_RAX) as i32));
    }
    thread.set(REG_EFL, thread.get(REG_EFL) & !TRAP_FLAG);
    SELECTOR.set(BLOCK);
}

/// Reads memory of the program that may not be there.
fn read<T: Copy + Default>(from: *mut c_void) -> Option<T> {
    let mut value = T::default();
    let to = (&raw mut value).cast();
    copy(from, to, size_of::<T>(), libc::SYS_process_vm_readv).then_some(value)
}

fn copy(theirs: *mut c_void, ours: *mut c_void, len: usize, number: i64) -> bool {
    let [ours, theirs] = [ours, theirs].map(|at| libc::iovec { iov_base: at, iov_len: len });
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let (ours, theirs) = (&raw const ours, &raw const theirs);
    // SAFETY: the kernel looks at the program's memory; the other is as long as that.
    unsafe { libc::syscall(number, own, ours, 1_i64, theirs, 1_i64, 0_i64) == len as i64 }
}

/// rt_sigprocmask(2), by what the handler returns to. What is wrong with it the kernel says.
fn change_mask(thread: &mut Thread<'_>) {
    let (set, old) = (thread.pointer(1), thread.pointer(2));
    let mask = thread.mask();
    // SAFETY: the kernel's set of signals is there, and is as long as that.
    let mut before = unsafe { mask.read() };
    let given = if set.is_null() { None } else { read::<u64>(set) };
    let now = match (thread.argument(0) as i32, given) {
        (libc::SIG_BLOCK, Some(given)) => before | given,
        (libc::SIG_UNBLOCK, Some(given)) => before & !given,
        (libc::SIG_SETMASK, Some(given)) => given,
        _ if set.is_null() => before,
        _ => return thread.again(true),
    };
    if thread.argument(3) != SET_LEN {
        return thread.again(true);
    }
    let bytes = (&raw mut before).cast();
    if !old.is_null() && !copy(old, bytes, size_of::<u64>(), libc::SYS_process_vm_writev) {
        return thread.again(true);
    }
    // SAFETY: as above.
    unsafe { mask.write(now & !OURS) };
    thread.answer(0);
}

/// rt_sigaction(2). The two signals stay these handlers', and are blocked by no other one.
fn change_action(thread: &mut Thread<'_>) {
    let (signal, new) = (thread.argument(0) as i32, thread.pointer(1));
    if new.is_null() || thread.argument(3) != SET_LEN {
        return thread.again(true);
    }
    if matches!(signal, libc::SIGSYS | libc::SIGTRAP) {
        return thread.answer(0);
    }
    let Some([handler, flags, restorer, mask]) = read::<[u64; 4]>(new) else {
        return thread.again(true);
    };
    let action = [handler, flags, restorer, mask & !OURS];
    let (action, old) = (action.as_ptr(), thread.pointer(2));
    // SAFETY: the action is the program's, but for two signals; the kernel looks at `old`.
    let set = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action, old, SET_LEN) };
    let errno = i64::from(crate::below::guard::errno());
    thread.answer(if set < 0 { -errno } else { set });
}
