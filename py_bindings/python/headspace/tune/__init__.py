"""`headspace tune`: finds the knobs with which training runs fastest.

    headspace tune --knob workers=1..8 --knob prefetch=1,2,4 -- \\
        python train.py --workers {workers} --prefetch {prefetch}

Data flows one way::

    knobs, command ─▶ plan ─▶ launch ─▶ outcome ─▶ store ─▶ results, plots
                       ▲                             │
                       └──────── objective ◀─────────┘

`plan` decides from the outcomes so far what to try next. It uses no clock and no files. `run.search`
executes the plan. Optuna is required: ``pip install '.[tune]'``.
"""
