//! A field of numbers, cut into columns between the ranks. In each step a number becomes the mean of
//! its four neighbours; the ranks exchange the columns at their borders, whose numbers lie a row
//! apart, by strided puts. In the end each rank compares its part with a run of one.
//!
//! Usage: `stencil [STEPS]`

use gasnet_ibv::{BarrierFlags, Client, Error, Rank, Seq, Strided, Strides};

const ROWS: usize = 48;
/// Columns of each rank.
const COLUMNS: usize = 20;
/// With the neighbours' columns on both sides.
const WIDE: usize = COLUMNS + 2;
/// Bytes of a number, and of a row.
const NUMBER: usize = size_of::<f64>();
const ROW: usize = WIDE * NUMBER;

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("stencil")?;
    let steps = match std::env::args().nth(1).map(|text| text.parse::<u32>()) {
        None => 50,
        Some(Ok(steps)) => steps,
        Some(Err(problem)) => {
            eprint(&format!("stencil: the number of steps: {problem}"));
            client.exit(2)
        }
    };
    let page = 4096;
    client.attach_segment(((ROWS * ROW).next_multiple_of(page)) as u64)?;
    let (rank, size) = (client.rank().0 as usize, client.size() as usize);
    let mut field = Field::new(WIDE, |row, column| start(row, rank * COLUMNS + column, size));
    for _ in 0..steps {
        exchange(&client, &mut field)?;
        field = field.step(1..=COLUMNS);
    }
    let mut serial = Field::new(size * COLUMNS + 2, |row, column| start(row, column, size));
    for _ in 0..steps {
        for row in 0..ROWS {
            serial.set(row, 0, serial.at(row, size * COLUMNS));
            serial.set(row, size * COLUMNS + 1, serial.at(row, 1));
        }
        serial = serial.step(1..=size * COLUMNS);
    }
    let same = |row: usize| {
        (1..=COLUMNS).all(|column| {
            let (own, all) = (field.at(row, column), serial.at(row, rank * COLUMNS + column));
            own.to_bits() == all.to_bits()
        })
    };
    if !(0..ROWS).all(same) {
        eprint(&format!("stencil: rank {rank} has other numbers than the run of one"));
        client.exit(1)
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if rank == 0 {
        let columns = size * COLUMNS;
        print(&format!("{steps} steps of {ROWS} x {columns} numbers on {size} ranks, as on one"));
    }
    client.exit(0)
}

/// The number that a place of the whole field begins with; columns count from 1.
fn start(row: usize, column: usize, size: usize) -> f64 {
    let column = (column + size * COLUMNS - 1) % (size * COLUMNS);
    f64::from(u32::try_from((row * 31 + column * 17) % 101).unwrap_or(0))
}

/// Puts the own border columns next to those of the neighbours, and takes what they put here.
fn exchange(client: &Client<Seq>, field: &mut Field) -> Result<(), Error> {
    let (rank, size) = (client.rank().0, client.size());
    let (left, right) = (Rank((rank + size - 1) % size), Rank((rank + 1) % size));
    let bytes = field.bytes();
    client.put_strided(left, &bytes, &column(1, COLUMNS + 1))?;
    client.put_strided(right, &bytes, &column(COLUMNS, 0))?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let mut bytes = bytes;
    for ghost in [0, COLUMNS + 1] {
        client.get_strided(client.rank(), &mut bytes, &column(ghost, ghost))?;
    }
    *field = Field::of(&bytes);
    // Nobody may put the next columns before these were taken.
    client.barrier(0, BarrierFlags::ANONYMOUS)
}

/// One column of the local field and one of the other rank's.
fn column(local: usize, remote: usize) -> Strided<'static> {
    const DOWN: &[isize] = &[ROW.cast_signed()];
    let side = |column| Strides { first: column * NUMBER, strides: DOWN };
    Strided { element: NUMBER, counts: &[ROWS], local: side(local), remote: side(remote) }
}

/// Rows of numbers.
struct Field {
    wide: usize,
    numbers: Vec<f64>,
}

impl Field {
    fn new(wide: usize, start: impl Fn(usize, usize) -> f64) -> Self {
        let places = (0..ROWS * wide).map(|at| (at / wide, at % wide));
        Self { wide, numbers: places.map(|(row, column)| start(row, column)).collect() }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.numbers[row * self.wide + column]
    }

    fn set(&mut self, row: usize, column: usize, number: f64) {
        self.numbers[row * self.wide + column] = number;
    }

    /// The next field; rows wrap around, and only these columns change.
    fn step(&self, columns: std::ops::RangeInclusive<usize>) -> Self {
        Self::new(self.wide, |row, column| {
            if !columns.contains(&column) {
                return self.at(row, column);
            }
            let (above, below) = ((row + ROWS - 1) % ROWS, (row + 1) % ROWS);
            let sides = self.at(row, column - 1) + self.at(row, column + 1);
            (sides + self.at(above, column) + self.at(below, column)) / 4.0
        })
    }

    fn bytes(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn of(bytes: &[u8]) -> Self {
        let numbers = bytes.as_chunks().0.iter().map(|number| f64::from_ne_bytes(*number));
        Self { wide: WIDE, numbers: numbers.collect() }
    }
}

#[expect(clippy::print_stdout, reason = "the output of the example")]
fn print(text: &str) {
    println!("{text}");
}

fn eprint(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}
