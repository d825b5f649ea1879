use super::*;

fn found(text: &str) -> Vec<(String, usize)> {
    functions(text).into_iter().map(|f| (f.name, f.lines)).collect()
}

#[test]
fn functions_end_with_the_brace_at_their_indent() {
    let text = "\
impl A {
    pub(crate) fn one(
        &self,
    ) -> u32 {
        if true {
            1
        }
    }

    fn without_body(&self);
    fn short() {}
}

pub const unsafe fn last<T>(t: T) {
    t
}
";
    let wanted = [("one", 7), ("short", 1), ("last", 3)].map(|(name, n)| (name.into(), n));
    assert_eq!(found(text), wanted);
}

#[test]
fn words_that_only_look_like_functions_are_none() {
    assert_eq!(found("// fn a() {\n//}\nlet f: fn(u32) = g;\nlet fn_b = 1;\n"), []);
}
