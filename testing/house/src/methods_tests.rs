use super::methods;

#[test]
fn methods_belong_to_the_type_of_their_block() {
    let text = "\
impl State {
    /// One.
    pub fn one(&self) {
        fn inside() {}
    }

    pub(crate) const fn two() {}
}

impl<T: Fn() -> u8> a::Wide<'_, T> {
    fn three() {}
}

impl<T> Drop for Wide<T> {
    fn drop(&mut self) {}
}

fn free() {}
";
    assert_eq!(methods(text), ["State", "State", "Wide"]);
}
