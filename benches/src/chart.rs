//! Charts of a run, as SVG files that need nothing from outside: grouped bars, or lines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

const SIZE: (u32, u32) = (760, 400);
/// The card that the chart is drawn on: its own background keeps it readable in light and dark pages.
const CARD: RGBColor = RGBColor(251, 250, 247);
const INK: RGBColor = RGBColor(31, 42, 51);
const GRID: RGBColor = RGBColor(216, 214, 206);
/// The colours differ in brightness as well as in hue.
const COLOURS: [RGBColor; 6] = [
    RGBColor(47, 102, 144),
    RGBColor(217, 131, 36),
    RGBColor(141, 182, 212),
    RGBColor(243, 198, 146),
    RGBColor(96, 38, 92),
    RGBColor(120, 152, 60),
];

/// The layout of the values on the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    Linear,
    Log,
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
    /// One for each category.
    pub(crate) values: Vec<f64>,
}

/// One picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// The file's name without its ending.
    pub(crate) file: String,
    pub(crate) title: String,
    /// The unit of the values.
    pub(crate) unit: String,
    /// The meaning of the categories.
    pub(crate) along: String,
    pub(crate) categories: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) scale: Scale,
    pub(crate) shape: Shape,
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
        ensure!(
            self.series.len() <= COLOURS.len(),
            "{} series cannot be told apart",
            self.series.len()
        );
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&CARD).map_err(drawing)?;
            let (low, high) = self.bounds();
            match self.scale {
                Scale::Linear => self.draw(&area, low, low..high)?,
                Scale::Log => self.draw(&area, low, (low..high).log_scale())?,
            }
            area.present().map_err(drawing)?;
        }
        // The title describes the chart for readers that do not see pictures.
        let title = format!("<title>{}</title>\n", escaped(&self.title));
        let at = svg.find('>').map_or(0, |end| end + 1);
        svg.insert_str(at, &title);
        Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1))
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let values = self.series.iter().flat_map(|series| &series.values);
        values.copied().filter(|value| self.shows(*value))
    }

    /// Returns whether a value is drawn: zero has no place on a logarithmic axis.
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// The ends of the axis; above the largest value there is room for its label.
    fn bounds(&self) -> (f64, f64) {
        let high = self.values().fold(0.0, f64::max);
        let low = self.values().fold(f64::INFINITY, f64::min);
        match self.scale {
            Scale::Linear => (0.0, (high * 1.12).max(f64::MIN_POSITIVE)),
            Scale::Log => {
                let floor = 10f64.powf(low.max(f64::MIN_POSITIVE).log10().floor());
                (floor, high.max(low) * 2.0)
            }
        }
    }

    fn y_label(&self) -> String {
        match self.scale {
            Scale::Linear => self.unit.clone(),
            Scale::Log => format!("{}, logarithmic", self.unit),
        }
    }

    fn draw<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        low: f64,
        axis: Y,
    ) -> Result<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let (head, body) = area.split_vertically(64);
        head.draw(&Text::new(self.title.clone(), (16, 12), text(20)))
            .map_err(drawing)?;
        self.legend(&head)?;
        let mut chart = ChartBuilder::on(&body)
            .margin_left(10)
            .margin_right(16)
            .margin_bottom(8)
            .x_label_area_size(54)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..self.categories.len() as f64, axis)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .y_labels(6)
            .y_label_formatter(&|value| short(*value))
            .y_label_style(text(16))
            .y_desc(self.y_label())
            .axis_desc_style(text(16))
            .draw()
            .map_err(drawing)?;
        for (i, category) in self.categories.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(i as f64 + 0.5, low));
            let style = text(16).pos(Pos::new(HPos::Center, VPos::Top));
            // On the whole area: below the axis is outside of the plot.
            area.draw(&Text::new(category.clone(), (x, y + 8), style))
                .map_err(drawing)?;
        }
        let (x, y) = chart.backend_coord(&(self.categories.len() as f64 / 2.0, low));
        let style = text(16).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(self.along.clone(), (x, y + 30), style))
            .map_err(drawing)?;
        match self.shape {
            Shape::Bars => self.bars(&mut chart, low),
            Shape::Lines => self.lines(&mut chart, true),
            Shape::Course => self.lines(&mut chart, false),
        }
    }

    fn legend(&self, head: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<()> {
        let mut x = 16;
        for (series, colour) in self.series.iter().zip(COLOURS) {
            head.draw(&Rectangle::new([(x, 42), (x + 12, 54)], colour.filled()))
                .map_err(drawing)?;
            let style = ("sans-serif", 16).into_font().color(&INK);
            head.draw(&Text::new(series.name.clone(), (x + 18, 42), style))
                .map_err(drawing)?;
            let letters = i32::try_from(series.name.chars().count())?;
            x += 18 + letters * 8 + 24;
        }
        Ok(())
    }

    fn bars<Y>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
        low: f64,
    ) -> Result<()>
    where
        Y: Ranged<ValueType = f64>,
    {
        let width = 0.8 / self.series.len() as f64;
        for (s, (series, colour)) in self.series.iter().zip(COLOURS).enumerate() {
            let shown = series.values.iter().enumerate();
            for (c, value) in shown.filter(|(_, value)| self.shows(**value)) {
                let left = c as f64 + 0.1 + s as f64 * width;
                let corners = [(left, low), (left + width * 0.92, *value)];
                let style = ("sans-serif", 14)
                    .into_font()
                    .color(&INK)
                    .pos(Pos::new(HPos::Center, VPos::Bottom));
                let label = EmptyElement::at((left + width * 0.46, *value))
                    + Text::new(short(*value), (0, -3), style);
                chart
                    .draw_series([Rectangle::new(corners, colour.filled())])
                    .map_err(drawing)?;
                chart.draw_series([label]).map_err(drawing)?;
            }
        }
        Ok(())
    }

    fn lines<Y>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
        marked: bool,
    ) -> Result<()>
    where
        Y: Ranged<ValueType = f64>,
    {
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let points = || {
                series
                    .values
                    .iter()
                    .enumerate()
                    .map(|(c, value)| (c as f64 + 0.5, *value))
            };
            chart
                .draw_series(LineSeries::new(points(), colour.stroke_width(2)))
                .map_err(drawing)?;
            if marked {
                chart
                    .draw_series(points().map(|point| Circle::new(point, 4, colour.filled())))
                    .map_err(drawing)?;
            }
        }
        Ok(())
    }
}

fn drawing<E: std::error::Error + Send + Sync + 'static>(
    error: DrawingAreaErrorKind<E>,
) -> anyhow::Error {
    anyhow!("{error}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Three significant digits, without an exponent.
fn short(value: f64) -> String {
    match value.abs() {
        huge if huge >= 9_995.0 => format!("{:.0}k", value / 1000.0),
        thousands if thousands >= 999.5 => format!("{:.1}k", value / 1000.0),
        hundreds if hundreds >= 99.95 => format!("{value:.0}"),
        tens if tens >= 9.995 => format!("{value:.1}"),
        zero if zero < 1e-9 => "0".into(),
        small if small < 0.01 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, shape: Shape) -> Chart {
        Chart {
            file: "x".into(),
            title: "a < b & c".into(),
            unit: "us".into(),
            along: "tasks of one process".into(),
            categories: vec!["2 tasks".into(), "16 tasks".into()],
            series: vec![
                Series {
                    name: "Lock".into(),
                    values: vec![12.5, 8.0],
                },
                Series {
                    name: "FairLock".into(),
                    values: vec![2500.0, 31_000.0],
                },
            ],
            scale,
            shape,
        }
    }

    #[test]
    fn a_chart_says_what_it_shows_and_needs_nothing_from_outside() {
        for scale in [Scale::Linear, Scale::Log] {
            for shape in [Shape::Bars, Shape::Lines, Shape::Course] {
                let svg = chart(scale, shape).svg().unwrap();
                for text in [
                    "<title>a &lt; b &amp; c</title>",
                    "16 tasks",
                    "FairLock",
                    "us",
                    "tasks of one process",
                ] {
                    assert!(svg.contains(text), "{text} in\n{svg}");
                }
                assert_eq!(
                    svg.contains("us, logarithmic"),
                    scale == Scale::Log,
                    "the scale is told: {svg}"
                );
                for outside in ["href", "url(", "@import", "NaN", "inf"] {
                    assert!(!svg.contains(outside), "{outside} in\n{svg}");
                }
            }
        }
    }

    #[test]
    fn bars_carry_their_values() {
        let svg = chart(Scale::Log, Shape::Bars).svg().unwrap();
        for value in ["12.5", "8.00", "2.5k", "31k"] {
            assert!(
                svg.contains(&format!("\n{value}\n")) || svg.contains(&format!(">{value}<")),
                "{value}"
            );
        }
    }

    #[test]
    fn nothing_has_no_bar_on_a_logarithmic_axis() {
        let mut chart = chart(Scale::Log, Shape::Bars);
        let bars = |chart: &Chart| chart.svg().unwrap().matches("<rect").count();
        let all = bars(&chart);
        chart.series[0].values[0] = 0.0;
        assert_eq!(bars(&chart), all - 1);
        assert!(chart.bounds().0 >= 1.0, "{:?}", chart.bounds());
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.0042, "0.0042"),
            (1.06, "1.06"),
            (73.4, "73.4"),
            (820.0, "820"),
            (1500.0, "1.5k"),
            (41_666.0, "42k"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
