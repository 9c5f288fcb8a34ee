//! The elements of a picture, and the room that texts need.

use std::fmt::Write as _;

/// The width of the drawing. A phone shows about this many pixels, so the text keeps its size there.
pub(super) const WIDTH: f64 = 400.0;
/// The width on a large screen.
pub(super) const SHOWN: f64 = 600.0;
pub(super) const MARGIN: f64 = 12.0;
pub(super) const TITLE: f64 = 16.0;
pub(super) const TEXT: f64 = 13.0;
pub(super) const SMALL: f64 = 11.5;

/// The elements of a picture.
#[derive(Default)]
pub(super) struct Drawing(pub(super) String);

impl Drawing {
    pub(super) fn text(&mut self, x: f64, y: f64, attributes: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>"
        );
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Variants of a product differ in their dashes.
    pub(super) fn course(&mut self, class: &str, variant: usize, points: &[(f64, f64)]) {
        let dashes = match variant {
            0 => "",
            1 => " stroke-dasharray=\"9 5\"",
            2 => " stroke-dasharray=\"3 4\"",
            _ => " stroke-dasharray=\"10 4 2 4\"",
        };
        let points: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.0,
            "<polyline class=\"{class}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.5\"{dashes} points=\"{}\"/>",
            points.join(" ")
        );
    }

    /// Variants of a product differ in their markers.
    pub(super) fn marker(&mut self, class: &str, variant: usize, (x, y): (f64, f64)) {
        let edge = "stroke=\"currentColor\" stroke-width=\"2\"";
        let element = match variant {
            0 => format!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"currentColor\"/>"
            ),
            1 => format!(
                "<g class=\"{class}\"><rect class=\"hole\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" {edge}/></g>",
                x - 4.0,
                y - 4.0
            ),
            _ => format!(
                "<g class=\"{class}\"><path class=\"hole\" d=\"M{x:.1} {:.1}l5 9h-10z\" {edge}/></g>",
                y - 5.5
            ),
        };
        self.0.push_str(&(element + "\n"));
    }
}

/// The width of a text, roughly.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

/// The lines of a text that fit into the drawing.
pub(super) fn wrapped(text: &str, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= WIDTH - 2.0 * MARGIN => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// One line, or two for a long label.
pub(super) fn halves(label: &str) -> Vec<String> {
    match label.split_once(' ') {
        Some((first, rest)) if label.chars().count() > 13 => vec![first.into(), rest.into()],
        _ => vec![label.to_owned()],
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
