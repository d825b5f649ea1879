use super::*;

/// With no limit but the Runtime's own.
fn tickets(base: u64) -> Tickets {
    Tickets::new(base, u64::MAX)
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("it is refused").errno()
}

fn draw(tickets: &Tickets, durable: u64, lsn: u64) -> Result<Ticket> {
    tickets.draw(Lsn(durable), || Ok(Lsn(lsn))).map(|(ticket, _)| ticket)
}

/// Rule R31: a ticket means something in the session that drew it, and there alone.
#[test]
fn r31_a_ticket_belongs_to_its_session() {
    let (one, two) = (tickets(1 << 60), tickets(5));
    let a = draw(&one, 0, 7).unwrap();
    assert_eq!(refused(two.position(a)), libc::EINVAL, "it has drawn none");
    let b = draw(&two, 0, 8).unwrap();
    assert_eq!((one.position(a), two.position(b)), (Ok(Lsn(7)), Ok(Lsn(8))));
    assert_eq!((refused(one.position(b)), refused(two.position(a))), (libc::EINVAL, libc::EINVAL));
    for never in [a.0.wrapping_add(1), a.0.wrapping_sub(1), 0, u64::MAX] {
        assert_eq!(refused(one.position(Ticket(never))), libc::EINVAL);
    }
}

#[test]
fn what_is_durable_needs_no_entry_and_stays_durable() {
    let own = tickets(9);
    let at_once = draw(&own, 5, 0).unwrap();
    let [a, b, c] = [9, 6, 10].map(|lsn| draw(&own, 5, lsn).unwrap());
    let open = || own.lock().open.len();
    assert_eq!(open(), 3);
    let d = draw(&own, 9, 11).unwrap();
    assert_eq!(open(), 2, "those before the first that is not durable");
    for durable in [at_once, a, b] {
        assert_eq!(own.position(durable), Ok(DURABLE));
    }
    assert_eq!((own.position(c), own.position(d)), (Ok(Lsn(10)), Ok(Lsn(11))));
    assert_eq!((own.open(Lsn(9)), own.open(Lsn(10)), own.open(Lsn(11))), (2, 1, 0));
}

#[test]
fn tickets_that_are_not_durable_are_bounded() {
    let own = tickets(0);
    let mut half = 0;
    for n in 1..=MOST as u64 {
        // The first is the newest: those behind it are found all the same.
        let lsn = if n == 1 { 1_000_000 } else { n };
        let (_, pressed) = own.draw(Lsn(0), || Ok(Lsn(lsn))).unwrap();
        half += usize::from(!pressed);
    }
    assert_eq!(half, MOST / 2 - 1);
    let staged = || panic!("nothing is staged for a ticket that is refused");
    assert_eq!(refused(own.draw(Lsn(1), staged)), libc::EAGAIN);
    let failed = own.draw(Lsn(2), || Err(errno(libc::EIO)));
    assert_eq!(refused(failed), libc::EIO, "the second is durable");
    draw(&own, 2, 70_000).unwrap();
    assert_eq!(refused(draw(&own, 2, 70_001)), libc::EAGAIN);
    draw(&own, MOST as u64, 70_001).unwrap();
    assert_eq!(own.lock().open.len(), 3);
}

/// A session's own limit counts where it is lower.
#[test]
fn a_session_may_have_fewer() {
    let own = Tickets::new(0, 2);
    let [first, _] = [1, 2].map(|lsn| draw(&own, 0, lsn).unwrap());
    assert_eq!(refused(draw(&own, 0, 3)), libc::EAGAIN);
    draw(&own, 1, 3).unwrap();
    assert_eq!(own.position(first), Ok(DURABLE));
}
