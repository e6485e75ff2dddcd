//! A model as a process that is stopped, paused and let go on, on its thread.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Wake},
    thread::{self, Thread},
};

use chainbreak_engine::{cluster::Signal, supervisor::LifeControl};

/// Runs a model until it exits, or is told to end: then it is dropped. While it is paused its whole thread stands still, as
/// the threads of a process do: nothing that it has spawned goes on either.
pub(super) async fn run_pausable<T>(
    mut control: LifeControl,
    model: impl Future<Output = T>,
) -> Option<T> {
    let mut model = pin!(model);
    loop {
        tokio::select! {
            biased;
            wish = control.next() => match wish {
                Signal::Stop => return None,
                Signal::Run => control.is_so(wish),
                Signal::Pause => {
                    control.is_so(wish);
                    stand_still(&mut control);
                }
            },
            ended = &mut model => return Some(ended),
        }
    }
}

fn stand_still(control: &mut LifeControl) {
    let mut over = pin!(control.resumed());
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    while over.as_mut().poll(&mut context).is_pending() {
        thread::park();
    }
}

/// Wakes a thread that stands still.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use chainbreak_engine::supervisor::{AgentHandle, agent_handle};
    use tokio::time::{interval, timeout};

    use super::*;

    /// A model on a thread of its own that counts, and so does what it has spawned.
    fn counts() -> (AgentHandle, Arc<AtomicUsize>, thread::JoinHandle<()>) {
        let (handle, control) = agent_handle();
        let count = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&count);
        let thread = thread::spawn(move || {
            super::super::run(async move {
                let beat = async move |count: Arc<AtomicUsize>| {
                    let mut ticks = interval(Duration::from_millis(1));
                    loop {
                        ticks.tick().await;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                };
                tokio::spawn(beat(Arc::clone(&counting)));
                let ended: Option<()> = run_pausable(control, beat(counting)).await;
                assert_eq!(ended, None);
            });
        });
        (handle, count, thread)
    }

    async fn goes_on(count: &AtomicUsize) {
        let so_far = count.load(Ordering::SeqCst);
        let mut ticks = interval(Duration::from_millis(1));
        let rises = async {
            while count.load(Ordering::SeqCst) == so_far {
                ticks.tick().await;
            }
        };
        timeout(Duration::from_secs(10), rises).await.unwrap();
    }

    #[tokio::test]
    async fn a_paused_model_does_nothing_at_all_until_it_may_go_on() {
        let (handle, count, thread) = counts();
        goes_on(&count).await;
        handle.signal(Signal::Pause).await.unwrap();
        // It says so just before it stands still.
        let mut ticks = interval(Duration::from_millis(30));
        ticks.tick().await;
        ticks.tick().await;
        let paused = count.load(Ordering::SeqCst);
        for _ in 0..3 {
            ticks.tick().await;
            assert_eq!(count.load(Ordering::SeqCst), paused);
        }
        handle.signal(Signal::Run).await.unwrap();
        goes_on(&count).await;
        handle.signal(Signal::Pause).await.unwrap();
        // A paused one can be ended.
        handle.kill();
        thread.join().unwrap();
    }
}
