use super::*;
use siftfs_base::Error;

#[test]
fn an_answer_is_the_value_that_it_carries() {
    assert_eq!(Reply::Done.done(), Ok(()));
    assert_eq!(Reply::Written { len: 7 }.written(), Ok(7));
    assert_eq!(Reply::Data(vec![1, 2]).data(), Ok(vec![1, 2]));
    assert_eq!(Reply::Opened { handle: Handle(3) }.opened(), Ok(Handle(3)));
    assert_eq!(Reply::Durable(true).durable(), Ok(true));
}

#[test]
fn an_answer_to_another_question_is_an_error() {
    let error = Reply::Offset(9).written().unwrap_err();
    assert!(matches!(&error, Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("written") && error.to_string().contains("Offset(9)"));
    assert!(Reply::Done.attr().is_err() && Reply::Written { len: 0 }.done().is_err());
}
