from cfaug.core.errors import UserError as UserError
from cfaug.report.records import Run as Run
from cfaug.run.api import compare as compare
from cfaug.run.api import evaluate as evaluate
from cfaug.run.api import fine_tune as fine_tune
from cfaug.run.api import generate_sets as generate_sets
from cfaug.run.api import mix as mix
from cfaug.run.api import open_source as open_source
from cfaug.run.api import read_run as read_run

__version__: str
