//! The small simulation against pipelines whose step follows from the laws.

use super::*;

fn station(servers: u32, ms: f64, room: u32) -> Station {
    Station {
        servers,
        parts: vec![(Supply::Free, ms)],
        times: Times::constant(),
        takes: 1.0,
        gives: 1.0,
        room,
        ahead: None,
        pool: None,
    }
}

fn simulated(stations: Vec<Station>, loop_ms: f64) -> SimulatedPipeline {
    SimulatedPipeline {
        stations,
        pools: Vec::new(),
        batch: 1.0,
        loop_ms,
        loop_times: Times::constant(),
        loop_cores: 0.0,
        contention: 0.0,
        device_ms: None,
        inline: false,
        cores: f64::INFINITY,
        others: 0.0,
        engines: f64::INFINITY,
    }
}

fn close(simulated: &SimulatedPipeline, ms: f64) {
    let step = simulated.step_ms();
    assert!((step / ms - 1.0).abs() < 0.01, "{step}, not {ms}");
}

#[test]
fn without_jitter_the_slowest_station_determines_the_step() {
    close(&simulated(vec![station(1, 25.0, 2)], 30.0), 30.0);
    close(&simulated(vec![station(1, 35.0, 2)], 30.0), 35.0);
    close(
        &simulated(vec![station(1, 10.0, 1), station(4, 100.0, 1)], 5.0),
        25.0,
    );
}

#[test]
fn work_on_shared_cores_takes_as_long_as_the_cores_need() {
    let mut shared = simulated(vec![station(8, 20.0, 4)], 1.0);
    shared.stations[0].parts = vec![(Supply::Cores, 20.0)];
    shared.cores = 2.0;

    close(&shared, 10.0);
}

#[test]
fn stations_that_share_a_pool_take_turns_on_its_threads() {
    let mut line = simulated(vec![station(4, 20.0, 4), station(4, 10.0, 4)], 5.0);
    for station in &mut line.stations {
        station.pool = Some(0);
    }
    for (threads, ms) in [(1, 30.0), (2, 15.0), (8, 5.0)] {
        line.pools = vec![threads];
        close(&line, ms);
    }
}

#[test]
fn aggregation_multiplies_the_calls_before_it() {
    let mut line = simulated(vec![station(1, 4.0, 5), station(1, 1.0, 2)], 3.0);
    line.stations[1].takes = 5.0;

    assert_eq!(line.calls(), [5.0, 1.0]);
    close(&line, 20.0);
}

#[test]
fn worker_processes_deliver_in_order_and_wait_if_they_are_ahead() {
    let mut line = simulated(vec![station(4, 40.0, 8)], 5.0);
    line.stations[0].ahead = Some(2);

    close(&line, 10.0);
}

#[test]
fn a_busy_device_hides_the_wait_of_the_loop() {
    let mut line = simulated(vec![station(1, 25.0, 2)], 5.0);
    line.device_ms = Some(30.0);

    close(&line, 30.0);
}

#[test]
fn a_blocked_pipeline_has_no_step() {
    assert!(simulated(vec![station(0, 1.0, 1)], 1.0).step_ms().is_nan());
}
