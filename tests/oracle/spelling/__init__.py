"""How torch's ops are spelled in Weft: functions with torch's arguments, one module a family."""
