//! Made-up charts.

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
                name: "Redisson Lock".into(),
                values: vec![2500.0, 31_000.0],
            },
        ],
        scale,
        shape,
        source: source("2026-11-24", "redis 7.0.15", 2),
    }
}

/// The texts of a picture, in one line.
fn texts(svg: &str) -> String {
    let texts = svg.split("<text ").skip(1);
    let texts = texts.map(|rest| rest.split_once('>').unwrap().1.split_once('<').unwrap().0);
    texts.collect::<Vec<_>>().join(" ")
}

/// The points of each line.
fn courses(svg: &str) -> Vec<&str> {
    let lines = svg.split("<polyline").skip(1);
    lines
        .map(|rest| {
            let (_, points) = rest.split_once(" points=\"").unwrap();
            points.split_once('"').unwrap().0
        })
        .collect()
}

#[test]
fn a_chart_names_its_contents_and_needs_nothing_from_outside() {
    for scale in [Scale::Linear, Scale::Log, Scale::Ratio] {
        for shape in [Shape::Bars, Shape::Lines, Shape::Course] {
            let svg = chart(scale, shape).svg().unwrap();
            let texts = texts(&svg);
            assert!(svg.contains("<title>a &lt; b &amp; c</title>"), "{svg}");
            for text in [
                "a &lt; b &amp; c",
                "16 tasks",
                "Redisson Lock",
                "us",
                "2026-11-24",
                "redis 7.0.15",
                "2 cores",
            ] {
                assert!(texts.contains(text), "{text} in\n{texts}");
            }
            assert_eq!(
                texts.contains("us, logarithmic"),
                scale != Scale::Linear,
                "the axis names the scale: {svg}"
            );
            assert_eq!(
                texts.contains("tasks of one process"),
                shape != Shape::Bars,
                "lines have a second axis: {svg}"
            );
            for outside in ["href", "url(", "@import", "NaN", "inf"] {
                assert!(!svg.contains(outside), "{outside} in\n{svg}");
            }
        }
    }
}

#[test]
fn bars_have_their_values() {
    let svg = chart(Scale::Log, Shape::Bars).svg().unwrap();
    for value in ["12.5", "8.00", "2.5k", "31k"] {
        assert!(svg.contains(&format!(">{value}<")), "{value}");
    }
}

#[test]
fn bars_start_at_zero_or_where_the_axis_says() {
    let name = |scale| {
        let chart = chart(scale, Shape::Bars);
        chart.name(&chart.axis())
    };
    assert_eq!(name(Scale::Linear), "us");
    assert_eq!(name(Scale::Log), "us, logarithmic; bars start at 1");
    assert_eq!(name(Scale::Ratio), "us, logarithmic; bars start at 1");
    let linear = chart(Scale::Linear, Shape::Bars).axis();
    assert_eq!((linear.base, linear.share(0.0)), (0.0, 0.0));
    let mut below = chart(Scale::Ratio, Shape::Bars);
    below.series[0].values = vec![0.1, 10.0];
    below.series[1].values = vec![1.0, 1.0];
    let axis = below.axis();
    assert!((axis.share(axis.base) - 0.5).abs() < 1e-9);
}

#[test]
fn a_zero_has_no_bar_on_a_logarithmic_axis() {
    let mut chart = chart(Scale::Log, Shape::Bars);
    let bars = |chart: &Chart| chart.svg().unwrap().matches("<rect").count();
    let all = bars(&chart);
    chart.series[0].values[0] = 0.0;
    assert_eq!(bars(&chart), all - 1);
    assert!(chart.axis().base >= 1.0);
}

#[test]
fn a_product_has_one_colour_in_every_chart() {
    for (name, class) in [
        ("Lock", "stanchion"),
        ("stanchion FairLock", "stanchion"),
        ("Redisson Semaphore", "redisson"),
        ("rslock", "rslock"),
        ("rlock", "rlock"),
        ("redsync", "redsync"),
        ("bare commands", "bare"),
    ] {
        let series = Series {
            name: name.into(),
            values: Vec::new(),
        };
        assert_eq!(series.product(), class, "{name}");
        // In light mode and in dark mode.
        let colour = format!(".{class}{{color:");
        assert_eq!(STYLE.matches(&colour).count(), 2, "{class}");
    }
}

#[test]
fn a_covered_line_is_drawn_next_to_the_other() {
    let mut chart = chart(Scale::Log, Shape::Lines);
    assert!(!texts(&chart.svg().unwrap()).contains(COINCIDE));
    for name in ["FairLock", "Semaphore"] {
        let values = chart.series[0].values.clone();
        chart.series.push(Series {
            name: name.into(),
            values,
        });
    }
    let svg = chart.svg().unwrap();
    assert!(texts(&svg).contains(COINCIDE));
    let mut lines = courses(&svg);
    assert_eq!(lines.len(), 4);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 4, "no line covers another: {lines:?}");
}

#[test]
fn a_series_has_one_value_for_each_category() {
    let mut chart = chart(Scale::Linear, Shape::Lines);
    chart.series[0].values.pop();
    let error = chart.svg().unwrap_err();
    assert!(error.to_string().contains("Lock"), "{error}");
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
    for (value, text) in [(0.01, "0.01"), (2500.0, "2.5k"), (10_000.0, "10k")] {
        assert_eq!(tick(value), text);
    }
}
