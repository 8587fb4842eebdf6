//! Draws a figure.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::figure::{Axis, Figure};

const SIZE: (u32, u32) = (800, 500);
const FONT: &str = "sans-serif";
/// Colours that people who see fewer colours tell apart.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The figure as text of an SVG.
///
/// # Errors
/// What the plotter says.
pub fn draw(figure: &Figure) -> Result<String, String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let (x, y) = (room(figure, 0), room(figure, 1));
    match (figure.x.log, figure.y.log) {
        (false, false) => paint(figure, &area, x, y),
        (true, false) => paint(figure, &area, x.log_scale(), y),
        (false, true) => paint(figure, &area, x, y.log_scale()),
        (true, true) => paint(figure, &area, x.log_scale(), y.log_scale()),
    }
    .map_err(|error| error.to_string())?;
    drop(area);
    text.push('\n');
    Ok(text)
}

/// What an axis shows: all values with some room; a linear one begins at 0 when nothing is below.
fn room(figure: &Figure, coordinate: usize) -> Range<f64> {
    let (low, high) = figure.span(coordinate);
    let axis: &Axis = if coordinate == 0 { &figure.x } else { &figure.y };
    if axis.log {
        return low / 1.5..high * 1.5;
    }
    let low = low.min(0.0);
    let high = if high > low { high } else { low + 1.0 };
    low..high + (high - low) * 0.05
}

/// A value at an axis.
fn tick(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if !(1e-3..1e7).contains(&size) => format!("{value:e}"),
        _ => {
            // Steps of an axis are sums: what is beyond six digits is noise.
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

fn paint<X, Y>(
    figure: &Figure,
    area: &Area<'_>,
    x: X,
    y: Y,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let (drawing, foot) = area.split_vertically(area.dim_in_pixel().1.saturating_sub(20));
    let made_of = format!("{}, {}", figure.commit, figure.machine);
    foot.draw(&Text::new(made_of, (12, 2), (FONT, 11).into_font().color(&BLACK.mix(0.6))))?;
    let mut chart = ChartBuilder::on(&drawing)
        .caption(&figure.title, (FONT, 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.15))
        .label_style((FONT, 13))
        .draw()?;
    for (series, colour) in figure.series.iter().zip(COLOURS.iter().cycle()) {
        let points = series.points.iter().map(|[x, y]| (*x, *y));
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(&series.name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    area.present()?;
    Ok(())
}
