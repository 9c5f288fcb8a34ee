//! Charts as SVG files that need nothing from outside: horizontal bars, or lines. They are readable on a phone, and in light and dark mode.

mod axis;
mod drawing;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

pub(crate) use self::axis::short;
use self::axis::{Axis, tick};
use self::drawing::{
    Drawing, MARGIN, SHOWN, SMALL, TEXT, TITLE, WIDTH, escaped, halves, width, wrapped,
};

/// The height of a bar with the room around it.
const ROW: f64 = 21.0;
/// The height of the plot of a line chart.
const PLOT: f64 = 220.0;
/// Lines that are nearer to each other than this are drawn next to each other.
const NEAR: f64 = 5.0;
const COINCIDE: &str = "Lines that coincide are drawn next to each other.";

/// The colours of Okabe and Ito, which colour-blind readers can tell apart; in dark mode they are lighter. `svg` embeds the style, so the
/// card has its own background in every page.
const STYLE: &str = "\
text{font-family:sans-serif;fill:#1f2a33}.card{fill:#fbfaf7}.head{stroke:#fbfaf7;stroke-width:4;paint-order:stroke;font-weight:bold}.hole{fill:#fbfaf7}.grid{stroke:#d8d6ce}.axis{stroke:#6f7780}
.stanchion{color:#0072b2}.redisson{color:#d55e00}.rslock{color:#00805d}.rlock{color:#a8558a}.redsync{color:#1f2a33}.bare{color:#7b828a}
.key{fill:currentColor;font-weight:bold}
@media (prefers-color-scheme:dark){text{fill:#e4e7ea}.card{fill:#1b2128}.head{stroke:#1b2128}.hole{fill:#1b2128}.grid{stroke:#3a434d}.axis{stroke:#8b949e}
.stanchion{color:#56b4e9}.redisson{color:#ff8a3d}.rslock{color:#2fc79b}.rlock{color:#e09cc8}.redsync{color:#e4e7ea}.bare{color:#9aa3ad}
.key{fill:currentColor}}
";

/// The products, by the first letters of the names of their series. Every other name is one of stanchion's primitives.
const PRODUCTS: [(&str, &str); 5] = [
    ("Redisson", "redisson"),
    ("rslock", "rslock"),
    ("rlock", "rlock"),
    ("redsync", "redsync"),
    ("bare", "bare"),
];
/// The colours of a course, whose series are no products.
const COURSE: [&str; 5] = ["stanchion", "redisson", "rslock", "rlock", "redsync"];

/// The layout of the values on the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Bars start at 0.
    Linear,
    /// Bars start at a power of ten that the axis names.
    Log,
    /// Logarithmic, bars start at 1: to the right the value is above 1.
    Ratio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    Bars,
    Lines,
    /// Lines without points: many categories, of which few have a text.
    Course,
}

/// One row of values that is compared with the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// One for each category. A zero has no place on a logarithmic axis.
    pub(crate) values: Vec<f64>,
}

impl Series {
    fn product(&self) -> &'static str {
        let of = |(prefix, class)| self.name.starts_with(prefix).then_some(class);
        PRODUCTS.into_iter().find_map(of).unwrap_or("stanchion")
    }
}

/// One picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// The file's name without its ending.
    pub(crate) file: String,
    pub(crate) title: String,
    /// The name of the axis of the values, with their unit.
    pub(crate) unit: String,
    /// The meaning of the categories.
    pub(crate) along: String,
    pub(crate) categories: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) scale: Scale,
    pub(crate) shape: Shape,
    /// What a reader must know besides, then the date, the server and the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) source: String,
}

/// The date, the server and the machine of a run, for the last line of a chart.
pub(crate) fn source(day: &str, server: &str, cores: usize) -> String {
    format!("{day}, {server} and all clients on one machine with {cores} cores.")
}

impl Chart {
    /// Writes `<file>.svg` into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let path = self.path(folder);
        let svg = self
            .svg()
            .with_context(|| format!("cannot draw {}", self.file))?;
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.svg", self.file))
    }

    pub(crate) fn svg(&self) -> Result<String> {
        for series in &self.series {
            ensure!(
                series.values.len() == self.categories.len(),
                "{} has not one value for each category",
                series.name
            );
        }
        let mut drawing = Drawing::default();
        let mut y = MARGIN;
        for line in wrapped(&self.title, TITLE * 1.08) {
            y += TITLE + 3.0;
            let attributes = format!("font-size=\"{TITLE}\" font-weight=\"bold\"");
            drawing.text(MARGIN, y, &attributes, &line);
        }
        let (mut y, offset) = match self.shape {
            Shape::Bars => (self.bars(&mut drawing, y + 12.0), false),
            Shape::Lines | Shape::Course => self.lines(&mut drawing, y + 12.0),
        };
        y += 6.0;
        let mut about = self.source.clone();
        if offset {
            about = format!("{COINCIDE} {about}");
        }
        for line in wrapped(about.trim_end(), SMALL) {
            y += SMALL + 4.0;
            drawing.text(MARGIN, y, &format!("font-size=\"{SMALL}\""), &line);
        }
        let height = (y + MARGIN).ceil();
        Ok(format!(
            "<svg role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{SHOWN}\" height=\"{}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"card\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n{}</svg>\n",
            height * SHOWN / WIDTH,
            escaped(&self.title),
            drawing.0
        ))
    }

    /// Returns whether a value is drawn.
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    fn axis(&self) -> Axis {
        let values = self.series.iter().flat_map(|series| &series.values);
        let values = || values.clone().copied().filter(|value| self.shows(*value));
        let high = values().fold(0.0, f64::max);
        let low = values().fold(f64::INFINITY, f64::min);
        let decade = |value: f64| 10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
        match self.scale {
            Scale::Linear => Axis {
                low: 0.0,
                high: high.max(f64::MIN_POSITIVE),
                base: 0.0,
                log: false,
            },
            Scale::Log => Axis {
                low: decade(low),
                high: high.max(low),
                base: decade(low),
                log: true,
            },
            Scale::Ratio => Axis {
                low: low.min(1.0),
                high: high.max(1.0),
                base: 1.0,
                log: true,
            },
        }
    }

    /// The name of the axis, and where its bars start if that is not zero.
    fn name(&self, axis: &Axis) -> String {
        let bars = self.shape == Shape::Bars;
        match self.scale {
            Scale::Linear => self.unit.clone(),
            Scale::Log | Scale::Ratio if bars => {
                let start = tick(axis.base);
                format!("{}, logarithmic; bars start at {start}", self.unit)
            }
            Scale::Log | Scale::Ratio => format!("{}, logarithmic", self.unit),
        }
    }

    /// The number of series of the same product before this one.
    fn variant(&self, nth: usize) -> usize {
        let product = self.series[nth].product();
        let before = self.series[..nth].iter();
        before.filter(|other| other.product() == product).count()
    }

    /// Draws the groups below each other, and returns the lower end.
    fn bars(&self, drawing: &mut Drawing, top: f64) -> f64 {
        let axis = self.axis();
        let names = self.series.iter().map(|series| width(&series.name, TEXT));
        let left = MARGIN + names.fold(0.0, f64::max) + 6.0;
        // To the right there is room for the value.
        let right = WIDTH - MARGIN - 40.0;
        let x = |value: f64| left + axis.share(value) * (right - left);
        let (mut y, mut shapes) = (top, Drawing::default());
        for (nth, category) in self.categories.iter().enumerate() {
            if !category.is_empty() {
                let attributes = format!("font-size=\"{TEXT}\" class=\"head\"");
                shapes.text(MARGIN, y + TEXT, &attributes, category);
                y += ROW;
            }
            for (s, series) in self.series.iter().enumerate() {
                let value = series.values[nth];
                if !self.shows(value) {
                    continue;
                }
                let (from, to) = (x(axis.base), x(value));
                let (start, long) = (from.min(to), (to - from).abs().max(1.0));
                let fill = match self.variant(s) {
                    0 => "fill=\"currentColor\"",
                    1 => "fill=\"currentColor\" fill-opacity=\".45\" stroke=\"currentColor\"",
                    _ => "fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"",
                };
                let end = format!("font-size=\"{TEXT}\" text-anchor=\"end\"");
                shapes.text(left - 6.0, y + TEXT, &end, &series.name);
                let _ = writeln!(
                    shapes.0,
                    "<rect class=\"{}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"{:.1}\" {fill}/>",
                    series.product(),
                    y + 2.0,
                    ROW - 7.0
                );
                let beside = format!("font-size=\"{TEXT}\"");
                shapes.text(from.max(to) + 5.0, y + TEXT, &beside, &short(value));
                y += ROW;
            }
            y += 5.0;
        }
        for value in axis.ticks() {
            let class = if value == axis.base { "axis" } else { "grid" };
            drawing.line(class, (x(value), top), (x(value), y));
            let middle = format!("font-size=\"{SMALL}\" text-anchor=\"middle\"");
            drawing.text(x(value), y + 14.0, &middle, &tick(value));
        }
        drawing.0.push_str(&shapes.0);
        y += 16.0;
        for line in wrapped(&self.name(&axis), TEXT) {
            y += TEXT + 3.0;
            drawing.text(MARGIN, y, &format!("font-size=\"{TEXT}\""), &line);
        }
        y
    }

    /// The places of the categories on an axis from 0 to 1: of numbers by their logarithms.
    fn places(&self) -> (Vec<f64>, bool) {
        let numbers: Option<Vec<f64>> = self
            .categories
            .iter()
            .map(|category| category.parse::<f64>().ok().filter(|number| *number > 0.0))
            .collect();
        let count = self.categories.len();
        match numbers {
            Some(numbers) if self.shape == Shape::Lines && count > 1 => {
                let (first, last) = (numbers[0].ln(), numbers[count - 1].ln());
                let place = |number: &f64| (number.ln() - first) / (last - first);
                (numbers.iter().map(place).collect(), true)
            }
            _ => {
                let steps = count.max(2) - 1;
                let even = (0..count).map(|nth| nth as f64 / steps as f64);
                (even.collect(), false)
            }
        }
    }

    /// Draws the lines, and returns the lower end and whether a line was moved away from another.
    fn lines(&self, drawing: &mut Drawing, top: f64) -> (f64, bool) {
        let axis = self.axis();
        let mut y = top;
        for line in wrapped(&self.name(&axis), TEXT) {
            y += TEXT;
            drawing.text(MARGIN, y, &format!("font-size=\"{TEXT}\""), &line);
            y += 3.0;
        }
        let (upper, lower) = (y + 18.0, y + 18.0 + PLOT);
        let (places, by_number) = self.places();
        let marked = self.shape == Shape::Lines;
        let label = |series: &Series| match series.values.last() {
            Some(last) if marked => halves(&format!("{} {}", series.name, short(*last))),
            _ => halves(&series.name),
        };
        let lines = self.series.iter().flat_map(label);
        let labels = lines.map(|line| width(&line, TEXT));
        let right = WIDTH - MARGIN - labels.fold(0.0, f64::max) * 1.08 - 10.0;
        let ticks = axis.ticks();
        let texts = ticks.iter().map(|value| width(&tick(*value), SMALL));
        let left = MARGIN + texts.fold(0.0, f64::max) + 10.0;
        let x = |place: f64| left + place * (right - left);
        let y = |value: f64| lower - axis.share(value) * (lower - upper);
        for value in ticks {
            let class = if value == axis.low { "axis" } else { "grid" };
            drawing.line(class, (left - 4.0, y(value)), (right + 4.0, y(value)));
            let end = format!("font-size=\"{SMALL}\" text-anchor=\"end\"");
            drawing.text(left - 7.0, y(value) + 4.0, &end, &tick(value));
        }
        for (category, place) in self.categories.iter().zip(&places) {
            let middle = format!("font-size=\"{SMALL}\" text-anchor=\"middle\"");
            drawing.text(x(*place), lower + 16.0, &middle, category);
        }
        let mut drawn: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut ends: Vec<(f64, usize)> = Vec::new();
        let mut moved = false;
        for (s, series) in self.series.iter().enumerate() {
            let value = |value: f64| y(value.max(axis.low));
            let points = places.iter().zip(&series.values);
            let mut points: Vec<_> = points.map(|(at, v)| (x(*at), value(*v))).collect();
            while drawn.iter().any(|other| covers(other, &points)) {
                points.iter_mut().for_each(|point| point.1 -= NEAR + 3.0);
                moved = true;
            }
            let (class, variant) = match self.shape {
                Shape::Course => (COURSE[s % COURSE.len()], s / COURSE.len()),
                _ => (series.product(), self.variant(s)),
            };
            drawing.course(class, variant, &points);
            if marked {
                for point in &points {
                    drawing.marker(class, variant, *point);
                }
            }
            ends.push((points.last().map_or(lower, |point| point.1), s));
            drawn.push(points);
        }
        // Labels keep their heights from each other, and stay within the plot.
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let labels: Vec<Vec<String>> = ends.iter().map(|(_, s)| label(&self.series[*s])).collect();
        let height = |lines: &[String]| lines.len() as f64 * (TEXT + 2.0) + 2.0;
        let mut next = f64::NEG_INFINITY;
        for (end, lines) in ends.iter_mut().zip(&labels) {
            end.0 = (end.0 - height(lines) / 2.0).max(next);
            next = end.0 + height(lines);
        }
        let mut limit = lower + 6.0;
        for ((at, s), lines) in ends.into_iter().zip(&labels).rev() {
            let at = at.min(limit - height(lines));
            limit = at;
            let class = match self.shape {
                Shape::Course => COURSE[s % COURSE.len()],
                _ => self.series[s].product(),
            };
            let attributes = format!("font-size=\"{TEXT}\" class=\"key {class}\"");
            for (nth, line) in lines.iter().enumerate() {
                let y = at + (nth as f64 + 1.0) * (TEXT + 2.0) - 2.0;
                drawing.text(right + 10.0, y, &attributes, line);
            }
        }
        let along = if by_number {
            format!("{}, logarithmic", self.along)
        } else {
            self.along.clone()
        };
        let middle = format!("font-size=\"{TEXT}\"");
        drawing.text(MARGIN, lower + 36.0, &middle, &along);
        (lower + 36.0, moved)
    }
}

/// Returns whether one line covers the other.
fn covers(one: &[(f64, f64)], other: &[(f64, f64)]) -> bool {
    let mut pairs = one.iter().zip(other);
    pairs.all(|(one, other)| (one.1 - other.1).abs() < NEAR)
}

#[cfg(test)]
mod tests;
