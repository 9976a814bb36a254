"""The compiler: functions as native code."""
