//! When an event is due.
//!
//! A watch stream carries no event times. The only clock in it is `metadata.creationTimestamp`, so the recorded pace
//! follows the creation times of ADDED objects; what comes between two of them is sent along with the first.

use std::time::Duration;

/// Longest pause of a recorded pace, so that a quiet month does not stop the replay.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Gives each event its moment, counted from the start of the run. The moments never go back.
pub enum Pace {
    Full,
    /// So many events per second.
    Rate {
        per_second: f64,
        events: u64,
    },
    /// So many times as fast as recorded.
    Recorded {
        factor: f64,
        newest: Option<i64>,
        due: Duration,
    },
}

impl Pace {
    pub fn new(rate: Option<f64>, factor: Option<f64>) -> Self {
        match (rate, factor) {
            (Some(per_second), _) => Pace::Rate { per_second, events: 0 },
            (None, Some(factor)) => Pace::Recorded { factor, newest: None, due: Duration::ZERO },
            (None, None) => Pace::Full,
        }
    }

    pub fn is_full_speed(&self) -> bool {
        matches!(self, Pace::Full)
    }

    /// The moment of the next event. `added` is the creation time of an ADDED object.
    pub fn due(&mut self, added: Option<&str>) -> Duration {
        match self {
            Pace::Full => Duration::ZERO,
            Pace::Rate { per_second, events } => {
                *events += 1;
                Duration::try_from_secs_f64((*events - 1) as f64 / *per_second).unwrap_or(Duration::MAX)
            }
            Pace::Recorded { factor, newest, due } => {
                if let Some(created) = added.and_then(seconds) {
                    let gap = created.saturating_sub(newest.unwrap_or(created));
                    if gap > 0 {
                        let pause = Duration::try_from_secs_f64(gap as f64 / *factor).unwrap_or(LONGEST_PAUSE);
                        *due += pause.min(LONGEST_PAUSE);
                    }
                    // The first objects of a watch are the existing ones, in any order of age.
                    *newest = Some(newest.unwrap_or(created).max(created));
                }
                *due
            }
        }
    }
}

/// Seconds since 1970 of a time as Kubernetes writes it (`2023-01-05T22:37:41Z`).
fn seconds(time: &str) -> Option<i64> {
    let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let in_range = year <= 9999 && (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if !in_range || second > 60 {
        return None;
    }
    // Years that begin in March: the leap day is the last of its year, and months have a regular pattern.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| {
        let digits = !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}
