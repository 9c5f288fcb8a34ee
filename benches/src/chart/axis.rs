//! The axis of the values, and the numbers on it.

/// The axis of the values.
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The start of bars.
    pub(super) base: f64,
    pub(super) log: bool,
}

impl Axis {
    /// The place of a value, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.log10() } else { value };
        let long = at(self.high) - at(self.low);
        if long <= 0.0 {
            return 0.0;
        }
        (at(value) - at(self.low)) / long
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.log {
            let (first, last) = (self.low.log10().floor(), self.high.log10().floor());
            let step = ((last - first) / 5.0).floor().max(0.0) + 1.0;
            // A short axis has ticks between the powers of ten, too.
            let between: &[f64] = if self.high / self.low < 100.0 {
                &[1.0, 2.0, 5.0]
            } else {
                &[1.0]
            };
            let mut power = first;
            while power <= last {
                let values = between.iter().map(|digit| digit * 10f64.powf(power));
                ticks.extend(values.filter(|value| *value >= self.low && *value <= self.high));
                power += step;
            }
            return ticks;
        }
        let rough = self.high / 4.0;
        let decade = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = steps.into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let mut nth = 0.0;
        while nth * step <= self.high * 1.000_1 {
            ticks.push(nth * step);
            nth += 1.0;
        }
        ticks
    }
}

/// A number of the axis: without digits that say nothing.
pub(super) fn tick(value: f64) -> String {
    match value {
        million if million >= 1e6 => format!("{}M", million / 1e6),
        thousand if thousand >= 1e3 => format!("{}k", thousand / 1e3),
        small => format!("{}", (small * 1e6).round() / 1e6),
    }
}

/// Three significant digits, without an exponent.
pub(crate) fn short(value: f64) -> String {
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
