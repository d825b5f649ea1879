//! A picture of the ratios, as SVG.

use crate::report::{Entry, Report};
use crate::run::EMBEDDED;
use std::fmt::Write;

const LEFT: f64 = 300.0;
const SCALE: f64 = 130.0;
/// Ratios beyond this are cut off.
const LARGEST: f64 = 4.0;
const LINE: f64 = 34.0;
const TOP: f64 = 70.0;

/// Colours of the marks of other file systems, in their order.
const MARKS: [&str; 2] = ["#2a2", "#e80"];

/// A bar per row: how much better than ext4 (to the right of 1), and what was designed for.
pub fn svg(report: &Report) -> String {
    let entries: Vec<&Entry> = report.rows.iter().filter(|e| e.ratio.is_some()).collect();
    let height = TOP + LINE * entries.len() as f64 + 20.0;
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='900' height='{height}' \
         font-family='sans-serif' font-size='13'>\n\
         <rect width='900' height='{height}' fill='white'/>\n\
         <text x='10' y='22' font-size='16'>SiftFS beside ext4 on the same disk: speed, ext4 is 1</text>\n\
         <text x='10' y='42' fill='#555'>dark: mounted; light: embedded; line: \
         quartiles of the rounds; red: designed for (mounted){}</text>\n",
        legend(report)
    );
    for tick in 0..=8 {
        let speed = f64::from(tick) * 0.5;
        let x = x_of(speed);
        let _ = writeln!(
            out,
            "<line x1='{x}' y1='{}' x2='{x}' y2='{height}' stroke='#ccc'/>\
             <text x='{x}' y='{}' text-anchor='middle' fill='#555'>{speed}</text>",
            TOP - 6.0,
            TOP - 9.0
        );
    }
    for (i, entry) in entries.iter().enumerate() {
        row(&mut out, report, entry, TOP + LINE * i as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn legend(report: &Report) -> String {
    let marks = report.peers.iter().zip(MARKS);
    marks.map(|(p, c)| format!("; <tspan fill='{c}'>{}</tspan>", escaped(p))).collect()
}

fn x_of(speed: f64) -> f64 {
    LEFT + speed.clamp(0.0, LARGEST) * SCALE
}

/// Of times the reciprocal: more is better in the whole picture.
fn speed(entry: &Entry, ratio: f64) -> f64 {
    if !entry.falls {
        ratio
    } else if ratio > 0.0 {
        1.0 / ratio
    } else {
        0.0
    }
}

fn row(out: &mut String, report: &Report, entry: &Entry, y: f64) {
    let _ = writeln!(
        out,
        "<text x='{}' y='{}' text-anchor='end'>{}</text>",
        LEFT - 8.0,
        y + 16.0,
        escaped(entry.what)
    );
    let embedded = entry.ratios.get(EMBEDDED).copied();
    let bars = [(entry.ratio, "#246", 0.0, 13.0), (embedded, "#9bd", 13.0, 7.0)];
    for (ratio, colour, down, height) in bars {
        let Some(ratio) = ratio else { continue };
        let value = speed(entry, ratio.median);
        let (from, to) = (x_of(speed(entry, ratio.p25)), x_of(speed(entry, ratio.p75)));
        let top = y + 2.0 + down;
        let middle = top + height / 2.0;
        let _ = writeln!(
            out,
            "<rect x='{LEFT}' y='{top}' width='{:.1}' height='{height}' fill='{colour}'/>\
             <line x1='{from:.1}' y1='{middle}' x2='{to:.1}' y2='{middle}' stroke='black'/>",
            x_of(value) - LEFT,
        );
        if value > LARGEST {
            let _ = writeln!(
                out,
                "<text x='{}' y='{}' font-size='11'>{value:.1}</text>",
                x_of(LARGEST) + 4.0,
                top + height
            );
        }
    }
    for (peer, colour) in report.peers.iter().zip(MARKS) {
        if let Some(ratio) = entry.ratios.get(peer) {
            let x = x_of(speed(entry, ratio.median));
            let _ = writeln!(out, "<circle cx='{x:.1}' cy='{}' r='4' fill='{colour}'/>", y + 9.0);
        }
    }
    if let Some(target) = entry.target {
        let x = x_of(speed(entry, target));
        let _ = writeln!(
            out,
            "<line x1='{x:.1}' y1='{y}' x2='{x:.1}' y2='{}' stroke='red' stroke-width='2'/>",
            y + 24.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
