"""AWS on this machine, as far as an app with our constructs needs it. Here: what is deployed, and the engine's process.

`commands` builds on this, and the engine runs in a process of its own. Of the engine, only a version is read here.
May import: engine.kubernetes.control_plane.
"""
