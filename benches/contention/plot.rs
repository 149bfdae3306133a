//! A picture of one backend: throughput, p99 and aborted share against writers.

use crate::row::{Row, Strategy};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (1_200, 420);

/// The smallest value on a logarithmic axis: nothing counted in a run is drawn there.
const FLOOR: f64 = 0.01;

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of a panel: a value of each row of a strategy.
struct Axis {
    title: &'static str,
    value: fn(&Row) -> f64,
    logarithmic: bool,
}

const PANELS: [Axis; 3] = [
    Axis { title: "likes a second", value: |row| row.events_per_s, logarithmic: true },
    Axis { title: "p99 of a like, ms", value: |row| row.p99_ms, logarithmic: true },
    Axis { title: "aborted commits, %", value: |row| row.aborted_share * 100.0, logarithmic: false },
];

fn color(strategy: Strategy) -> RGBColor {
    // Told apart by those who see few colors, and in black and white by their lightness.
    match strategy {
        Strategy::Single => RGBColor(0xC0, 0x39, 0x2B),
        Strategy::Sharded => RGBColor(0xE6, 0x9F, 0x00),
        Strategy::Aggregated => RGBColor(0x56, 0xB4, 0xE9),
        Strategy::Hotcount => RGBColor(0x00, 0x4D, 0x80),
    }
}

/// Draws the rows into `path`.
pub(crate) fn draw(path: &Path, title: &str, rows: &[&Row]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 20))?;
    for (panel, axis) in root.split_evenly((1, 3)).iter().zip(&PANELS) {
        if axis.logarithmic { logarithmic(panel, axis, rows)? } else { linear(panel, axis, rows)? }
    }
    root.present()?;
    Ok(())
}

fn writers(rows: &[&Row]) -> (f64, f64) {
    let of = rows.iter().map(|row| row.writers as f64);
    (of.clone().fold(f64::MAX, f64::min), of.fold(1.0, f64::max) * 1.15)
}

fn points(rows: &[&Row], strategy: Strategy, axis: &Axis) -> Vec<(f64, f64)> {
    let floor = if axis.logarithmic { FLOOR } else { 0.0 };
    let of = rows.iter().filter(|row| row.strategy == strategy);
    of.map(|row| (row.writers as f64, (axis.value)(row).max(floor))).collect()
}

fn label(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e3 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}

fn logarithmic(panel: &Panel<'_>, axis: &Axis, rows: &[&Row]) -> Result<(), Box<dyn Error>> {
    let (few, many) = writers(rows);
    let values = rows.iter().map(|row| (axis.value)(row).max(FLOOR));
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(panel)
        .caption(axis.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((few..many).log_scale(), (low / 2.0..high * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("writers")
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| label(*y))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for strategy in Strategy::ALL {
        let color = color(strategy);
        let points = points(rows, strategy, axis);
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    Ok(())
}

/// This panel is emptiest, so it has the legend.
fn linear(panel: &Panel<'_>, axis: &Axis, rows: &[&Row]) -> Result<(), Box<dyn Error>> {
    let (few, many) = writers(rows);
    let mut chart = ChartBuilder::on(panel)
        .caption(axis.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((few..many).log_scale(), -2.0..102.0)?;
    chart
        .configure_mesh()
        .x_desc("writers")
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for strategy in Strategy::ALL {
        let (points, color) = (points(rows, strategy, axis), color(strategy));
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
            .label(strategy.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}
