"""`headspace tune`: finds the knobs with which training runs fastest.

    headspace tune --knob workers=1..8 --knob prefetch=1,2,4 -- \\
        python train.py --workers {workers} --prefetch {prefetch}

Data flows one way::

    knobs, command ─▶ plan ─▶ launch ─▶ outcome ─▶ store ─▶ results, plots
                       ▲                             │
                       └──────── objective ◀─────────┘

`plan` says what to try next from the outcomes so far, and knows neither clock nor file; `run.search` runs
it. Needs Optuna: ``pip install '.[tune]'``.
"""
