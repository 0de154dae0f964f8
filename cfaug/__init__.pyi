from cfaug.core.errors import UserError as UserError
from cfaug.data.index import Index as Index
from cfaug.data.mixture.records import Mixture as Mixture
from cfaug.report.records import Run as Run
from cfaug.report.results import Result as Result
from cfaug.run.api import annotate as annotate
from cfaug.run.api import compare as compare
from cfaug.run.api import evaluate as evaluate
from cfaug.run.api import fine_tune as fine_tune
from cfaug.run.api import generate_sets as generate_sets
from cfaug.run.api import mix as mix
from cfaug.run.api import open_source as open_source
from cfaug.run.api import read_run as read_run
from cfaug.run.api import table as table
from cfaug.run.compare import Comparison as Comparison
from cfaug.run.lightning import CounterfactualDataModule as CounterfactualDataModule
from cfaug.train.classification_module import ClassificationModule as ClassificationModule
from cfaug.train.classification_module import EntailmentModule as EntailmentModule
from cfaug.train.contrastive_module import ContrastiveModule as ContrastiveModule
from cfaug.train.generative_modules import AnswerModule as AnswerModule

__version__: str
