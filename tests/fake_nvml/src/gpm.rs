//! GPM: metrics computed from two samples of the hardware counters.

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings::{nvmlGpmMetric_t, nvmlGpmMetricsGet_t, nvmlGpmSupport_t};

use crate::code::returned;
use crate::code::{Answer, Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, VERSION_MISMATCH};
use crate::gpm_metrics::{name_of, unit_of};
use crate::pointer::{Handle, Out};
use crate::script::{Gpm, Gpu};
use crate::world::{Stamp, World, call, call_about, on_device, world};

/// The only version that the header defines.
const VERSION: c_uint = 1;

/// Shortest time between two samples, in seconds. nvml.h: "should be greater than 100ms".
const REFRESH: f64 = 0.1;

/// Tolerance in seconds: a clock of type `f64` cannot represent 100 ms exactly.
const ROUNDING: f64 = 1e-9;

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, support: Out<nvmlGpmSupport_t>) -> c_uint {
    on_device("nvmlGpmQueryDeviceSupport", device, |_, target| {
        let given = support.get()?;
        if given.version != VERSION {
            return Err(VERSION_MISMATCH);
        }
        let mig = target.gpu.mig.as_ref().filter(|mig| mig.enabled);
        let parts = mig.is_some_and(|mig| mig.devices.iter().any(|part| part.gpm.is_some()));
        support.put(nvmlGpmSupport_t {
            isSupportedDevice: (target.gpu.gpm.is_some() || parts).into(),
            ..given
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(sample: Out<Handle>) -> c_uint {
    call("nvmlGpmSampleAlloc", |world| {
        let number = world.next_sample;
        sample.put(Handle(number))?;
        world.next_sample += 1;
        world.samples.insert(number, None);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: Handle) -> c_uint {
    call("nvmlGpmSampleFree", |world| {
        let freed = world.samples.remove(&sample.0);
        freed.map(|_| ()).ok_or(INVALID_ARGUMENT)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: Handle, sample: Handle) -> c_uint {
    on_device("nvmlGpmSampleGet", device, |world, target| {
        target.whole()?;
        series_of(&target.gpu, None)?;
        let stamp = Stamp {
            gpu: target.index,
            instance: None,
            time: target.now,
        };
        keep(world, sample, stamp)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: Handle, instance: c_uint, sample: Handle) -> c_uint {
    on_device("nvmlGpmMigSampleGet", device, |world, target| {
        target.whole()?;
        series_of(&target.gpu, Some(instance))?;
        let stamp = Stamp {
            gpu: target.index,
            instance: Some(instance),
            time: target.now,
        };
        keep(world, sample, stamp)
    })
}

fn keep(world: &mut World, sample: Handle, stamp: Stamp) -> Answer {
    let place = world.samples.get_mut(&sample.0).ok_or(INVALID_ARGUMENT)?;
    *place = Some(stamp);
    Ok(())
}

/// The script's GPM series of a GPU, or of one of its GPU instances.
fn series_of(gpu: &Gpu, instance: Option<c_uint>) -> Result<&Gpm, Code> {
    let Some(instance) = instance else {
        return gpu.gpm.as_ref().ok_or(NOT_SUPPORTED);
    };
    let mig = gpu.mig.as_ref().filter(|mig| mig.enabled);
    let mut parts = mig.ok_or(NOT_SUPPORTED)?.devices.iter();
    let part = parts.find(|part| part.gpu_instance == instance);
    part.ok_or(NOT_FOUND)?.gpm.as_ref().ok_or(NOT_SUPPORTED)
}

/// Versions of the header differ in the length of the array `metrics`, but not in its offset. This
/// function accesses only the entries that the caller requests.
#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(request: Out<nvmlGpmMetricsGet_t>) -> c_uint {
    let raw = request.raw();
    let gpu = (!raw.is_null()).then(|| {
        // SAFETY: the pointer is not null. By NVML's contract the fields before `metrics` are
        // initialised.
        let first = unsafe { (*raw).sample1 };
        world().samples.get(&first.addr()).copied().flatten()
    });
    let gpu = gpu.flatten().map(|stamp| stamp.gpu);
    call_about("nvmlGpmMetricsGet", gpu, |world| {
        request.check()?;
        // SAFETY: `check` has refused a null pointer. By NVML's contract the fields before
        // `metrics` are initialised.
        let (version, number, first, second) = unsafe {
            let head = &raw const (*raw);
            (
                (*head).version,
                (*head).numMetrics,
                (*head).sample1.addr(),
                (*head).sample2.addr(),
            )
        };
        if version != VERSION {
            return Err(VERSION_MISMATCH);
        }
        let stamp = |sample| world.samples.get(&sample).copied().flatten();
        let (first, second) = stamp(first).zip(stamp(second)).ok_or(INVALID_ARGUMENT)?;
        let one_device = (first.gpu, first.instance) == (second.gpu, second.instance);
        if !one_device || second.time - first.time < REFRESH - ROUNDING {
            return Err(INVALID_ARGUMENT);
        }
        let gpu = world.gpus.get(first.gpu).ok_or(INVALID_ARGUMENT)?;
        let series = series_of(gpu, first.instance)?;
        // SAFETY: the pointer stays inside the caller's struct.
        let metrics = unsafe { (&raw mut (*raw).metrics).cast::<nvmlGpmMetric_t>() };
        for i in 0..number as usize {
            // SAFETY: by NVML's contract the array has at least `numMetrics` entries.
            let place = Out::from_raw(unsafe { metrics.add(i) });
            answer(&place, series, (first.time, second.time))?;
        }
        Ok(())
    })
}

fn answer(place: &Out<nvmlGpmMetric_t>, series: &Gpm, (from, until): (f64, f64)) -> Answer {
    let mut metric = place.get()?;
    let known = series.get(&metric.metricId);
    let mean = known.and_then(|series| series.mean(from, until));
    metric.nvmlReturn = returned(mean.map(|_| ()).ok_or(NOT_SUPPORTED));
    metric.value = mean.unwrap_or(0.0);
    let name = name_of(metric.metricId).map_or(std::ptr::null_mut(), text);
    metric.metricInfo.shortName = name;
    metric.metricInfo.longName = name;
    metric.metricInfo.unit = text(unit_of(metric.metricId));
    place.put(metric)
}

/// The header declares these strings without `const`, but nobody writes to them.
fn text(text: &'static CStr) -> *mut c_char {
    text.as_ptr().cast_mut()
}
