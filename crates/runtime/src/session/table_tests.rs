use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

fn refused<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("it is refused").errno()
}

fn draw(sessions: &Sessions, session: SessionId, durable: u64, lsn: u64) -> Result<Ticket> {
    sessions.draw(session, Lsn(durable), || Ok(Lsn(lsn))).map(|(ticket, _)| ticket)
}

/// Rule R31: a ticket means something in the session that drew it, and there alone.
#[test]
fn r31_a_ticket_belongs_to_its_session() {
    let sessions = Sessions::default();
    let a = draw(&sessions, ONE, 0, 7).unwrap();
    assert_eq!(refused(sessions.position(TWO, a)), libc::EINVAL, "it has drawn none");
    let b = draw(&sessions, TWO, 0, 8).unwrap();
    assert_eq!(sessions.position(ONE, a), Ok(Lsn(7)));
    assert_eq!(sessions.position(TWO, b), Ok(Lsn(8)));
    assert_eq!(refused(sessions.position(ONE, b)), libc::EINVAL);
    assert_eq!(refused(sessions.position(TWO, a)), libc::EINVAL);
    for never in [a.0.wrapping_add(1), a.0.wrapping_sub(1), 0, u64::MAX] {
        assert_eq!(refused(sessions.position(ONE, Ticket(never))), libc::EINVAL);
    }
}

/// Rule R31: and no more once the session has ended, also if another one gets its number.
#[test]
fn r31_a_ticket_ends_with_its_session() {
    let sessions = Sessions::default();
    let old = draw(&sessions, ONE, 0, 7).unwrap();
    let kept = draw(&sessions, TWO, 0, 8).unwrap();
    sessions.end(ONE);
    assert_eq!(refused(sessions.position(ONE, old)), libc::EINVAL);
    let new = draw(&sessions, ONE, 0, 9).unwrap();
    assert_eq!(refused(sessions.position(ONE, old)), libc::EINVAL);
    assert_eq!(sessions.position(ONE, new), Ok(Lsn(9)));
    assert_eq!(sessions.position(TWO, kept), Ok(Lsn(8)));
    let ended = sessions.draw(ONE, Lsn(0), || {
        sessions.end(ONE);
        draw(&sessions, ONE, 0, 1).map(|_| Lsn(10))
    });
    assert_eq!(refused(ended), libc::EINVAL, "while one was drawn");
}

#[test]
fn what_is_durable_needs_no_entry_and_stays_durable() {
    let sessions = Sessions::default();
    let at_once = draw(&sessions, ONE, 5, 0).unwrap();
    let [a, b, c] = [9, 6, 10].map(|lsn| draw(&sessions, ONE, 5, lsn).unwrap());
    let open = || sessions.lock()[&ONE].open.len();
    assert_eq!(open(), 3);
    let d = draw(&sessions, ONE, 9, 11).unwrap();
    assert_eq!(open(), 2, "those before the first that is not durable");
    for durable in [at_once, a, b] {
        assert_eq!(sessions.position(ONE, durable), Ok(DURABLE));
    }
    assert_eq!(sessions.position(ONE, c), Ok(Lsn(10)));
    assert_eq!(sessions.position(ONE, d), Ok(Lsn(11)));
}

#[test]
fn tickets_that_are_not_durable_are_bounded() {
    let sessions = Sessions::default();
    let mut half = 0;
    for n in 1..=MOST as u64 {
        // The first is the newest: those behind it are found all the same.
        let lsn = if n == 1 { 1_000_000 } else { n };
        let (_, pressed) = sessions.draw(ONE, Lsn(0), || Ok(Lsn(lsn))).unwrap();
        half += usize::from(!pressed);
    }
    assert_eq!(half, MOST / 2 - 1);
    let staged = || panic!("nothing is staged for a ticket that is refused");
    assert_eq!(refused(sessions.draw(ONE, Lsn(1), staged)), libc::EAGAIN);
    draw(&sessions, TWO, 1, 5).unwrap();
    let failed = sessions.draw(ONE, Lsn(2), || Err(errno(libc::EIO)));
    assert_eq!(refused(failed), libc::EIO, "the second is durable");
    draw(&sessions, ONE, 2, 70_000).unwrap();
    assert_eq!(refused(draw(&sessions, ONE, 2, 70_001)), libc::EAGAIN);
    draw(&sessions, ONE, MOST as u64, 70_001).unwrap();
    assert_eq!(sessions.lock()[&ONE].open.len(), 3);
}
